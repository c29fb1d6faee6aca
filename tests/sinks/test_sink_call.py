"""The callable sink: determinants before the call, cursors after it, identical rows and ids when it is repeated."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from sink_child import CHANNEL, SCHEMA, bundle, row
from sink_support import QUERY

from clonos import sinks
from clonos.errors import ConfigurationError, Fenced, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.sinks.patience import Patience


class Outside:
    """A store that the function writes to; `fail` is called before each row, `checks` counts questions."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Any]] = []
        self.calls = 0
        self.fail: Any = lambda row_id: None
        self.after: Any = lambda: None

    def write(self, rows: list[Any], ids: list[str]) -> None:
        self.calls += 1
        for each, row_id in zip(rows, ids, strict=True):
            self.fail(row_id)
            self.rows.append((row_id, tuple(each)))
        self.after()

    def last_written(self, channel: int) -> int | None:
        found = [int(row_id.rpartition("-")[2]) for row_id, _ in self.rows]
        return max(found, default=None) if channel == CHANNEL else None


def made(outside: Outside, folder: Path, mode: Any = "idempotent", **options: Any) -> Any:
    asked = outside.last_written if mode == "checkable" else None
    options = {"id_prefix": "", "patience": 0, "durable": False, "path": folder, **options}
    sink = sinks.call(outside.write, mode=mode, last_written=asked, **options)
    sink.validate(SCHEMA)
    return sink


def opened(sink: Any, fence: int = 1) -> Any:
    writer = sink.writer()
    writer.open(query=QUERY, node=5, instance=0, fence=fence)
    return writer


def rows(first: int, last: int) -> list[tuple[str, Any]]:
    return [(f"3-0-{position}", row(position)) for position in range(first, last + 1)]


def kept(sink: Any) -> tuple[list[bytes], dict[Any, Any]]:
    with closing(sink.log_reader(QUERY)) as reader:
        return list(reader.deltas()), reader.cursors()


MODES = pytest.mark.parametrize("mode", ["idempotent", "checkable"])


@MODES
def test_determinants_go_before_and_cursors_after(mode: str, tmp_path: Path) -> None:
    outside = Outside()
    sink = made(outside, tmp_path, mode)
    seen: list[Any] = []
    outside.after = lambda: seen.append(kept(sink))
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 3))
        writer.write(rows=[], ids=[], cursors={CHANNEL: 5}, deltas=[b"no rows"])
        writer.write(**bundle(6, 7))
    deltas = [b"delta up to 3", b"no rows", b"delta up to 7"]
    assert seen == [(deltas[:1], {}), (deltas, {(5, 0): {CHANNEL: 5}})]
    assert kept(sink) == (deltas, {(5, 0): {CHANNEL: 7}})
    assert outside.rows == rows(1, 3) + rows(6, 7)
    with closing(sink.writer()) as again:
        assert again.open(query=QUERY, node=5, instance=0, fence=2).cursors == {CHANNEL: 7}


def test_rows_have_names_and_ids_name_the_query(tmp_path: Path) -> None:
    got: list[Any] = []
    sink = sinks.call(lambda rows, ids: got.extend(zip(rows, ids, strict=True)), path=tmp_path, durable=False)
    sink.validate(SCHEMA)
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 1))
    assert (got[0][0].card, got[0][0].n, got[0][1]) == (*row(1), f"{QUERY}/3-0-1")


@MODES
def test_a_failure_that_can_go_away_is_tried_again(mode: str, tmp_path: Path) -> None:
    outside = Outside()
    failures = iter([ConnectionError("reset"), TimeoutError("slow"), SinkUnavailable("busy")])

    def fail(row_id: str) -> None:
        error = next(failures, None) if row_id == "3-0-3" else None
        if error:
            raise error

    outside.fail = fail
    with closing(opened(made(outside, tmp_path, mode, patience=120))) as writer:
        writer._patience = Patience(30, sleep=lambda _: None)
        writer.write(**bundle(1, 4))
        assert writer.counted() == {"sink_retries": 3}
    if mode == "checkable":
        assert outside.rows == rows(1, 4)
    else:
        assert outside.rows == rows(1, 2) * 3 + rows(1, 4)


@MODES
def test_after_patience_the_same_bundle_or_a_new_writer_goes_on(mode: str, tmp_path: Path) -> None:
    outside = Outside()
    sink = made(outside, tmp_path, mode)

    def fail(row_id: str) -> None:
        if row_id == "3-0-3":
            raise ConnectionError("reset")

    outside.fail = fail
    with closing(opened(sink)) as writer:
        with pytest.raises(SinkUnavailable, match="ConnectionError: reset"):
            writer.write(**bundle(1, 4))
        with pytest.raises(SinkError, match="another bundle"):
            writer.write(**bundle(1, 5))
        assert kept(sink)[0] == [b"delta up to 4"]
    outside.fail = lambda row_id: None
    with closing(sink.writer()) as writer:
        at = writer.open(query=QUERY, node=5, instance=0, fence=2).cursors.get(CHANNEL, 0)
        assert at == (2 if mode == "checkable" else 0)
        writer.write(**bundle(at + 1, 4))
    assert list(dict.fromkeys(outside.rows)) == rows(1, 4)
    assert len(outside.rows) == (4 if mode == "checkable" else 6)


@MODES
def test_a_failure_of_the_function_itself_ends_the_query(mode: str, tmp_path: Path) -> None:
    outside = Outside()
    outside.fail = lambda row_id: {}["no such key"]
    with closing(opened(made(outside, tmp_path, mode))) as writer:
        with pytest.raises(SinkError, match="write failed: KeyError") as caught:
            writer.write(**bundle(1, 2))
        assert isinstance(caught.value.__cause__, KeyError)


class _Odd(BaseException):
    """An exception that `except Exception` does not take."""


@MODES
@pytest.mark.parametrize("raised", [SystemExit("no licence"), _Odd("no licence")])
def test_a_function_that_exits_ends_the_query_and_is_named(
    raised: BaseException, mode: str, tmp_path: Path
) -> None:
    def fail(row_id: str) -> None:
        raise raised

    outside = Outside()
    outside.fail = fail
    with closing(opened(made(outside, tmp_path, mode))) as writer:
        words = f"the sink's write failed: {type(raised).__name__}: no licence"
        with pytest.raises(SinkError, match=words) as caught:
            writer.write(**bundle(1, 2))
    assert caught.value.__cause__ is raised
    assert not caught.value.retryable


def test_an_interrupt_is_no_failure_of_the_function(tmp_path: Path) -> None:
    def fail(row_id: str) -> None:
        raise KeyboardInterrupt

    outside = Outside()
    outside.fail = fail
    with closing(opened(made(outside, tmp_path))) as writer, pytest.raises(KeyboardInterrupt):
        writer.write(**bundle(1, 2))


def test_a_writer_fenced_between_tries_stops_calling(tmp_path: Path) -> None:
    outside = Outside()
    sink = made(outside, tmp_path)
    outside.fail = lambda row_id: (_ for _ in ()).throw(ConnectionError())
    with closing(opened(sink, 1)) as writer:
        writer._patience = Patience(30, sleep=lambda _: sink.raise_fence(QUERY, 2))
        with pytest.raises(Fenced):
            writer.write(**bundle(1, 2))
    assert outside.calls == 1


@pytest.mark.parametrize(
    ("arrived", "words"), [(2, "rows up to 4 had arrived"), (9, "rows up to 4 were handed over")]
)
def test_an_answer_that_cannot_be_is_refused(arrived: int, words: str, tmp_path: Path) -> None:
    outside = Outside()
    sink = made(outside, tmp_path, "checkable")
    with closing(opened(sink)) as writer:
        writer.write(**bundle(1, 4))
    outside.rows = rows(1, arrived)
    with pytest.raises(SinkError, match=words), closing(sink.writer()) as writer:
        writer.open(query=QUERY, node=5, instance=0, fence=2)


@pytest.mark.parametrize("arrived", [None, 3, 99])
def test_an_answer_that_cannot_be_is_refused_after_a_failed_write_too(
    arrived: int | None, tmp_path: Path
) -> None:
    outside = Outside()
    answer: list[Any] = []

    def fail(row_id: str) -> None:
        if row_id == "3-0-5" and not answer:
            answer.append(arrived)
            raise ConnectionError("reset")

    outside.fail = fail
    sink = sinks.call(
        outside.write,
        mode="checkable",
        last_written=lambda channel: answer[0] if answer else None,
        path=tmp_path,
        id_prefix="",
        durable=False,
    )
    sink.validate(SCHEMA)
    said = "that nothing has arrived" if arrived is None else str(arrived)
    with closing(opened(sink)) as writer:
        writer._patience = Patience(30, sleep=lambda _: None)
        writer.write(**bundle(1, 4))
        with pytest.raises(
            SinkError, match=f"says {said}; rows up to 4 had arrived and rows up to 6"
        ) as caught:
            writer.write(**bundle(5, 6))
        assert not caught.value.retryable
    assert outside.rows == rows(1, 4)


@pytest.mark.parametrize("answer", [True, 2.9, float("nan"), "x", "2", [1]], ids=repr)
def test_an_answer_that_is_no_position_is_refused_and_named(answer: Any, tmp_path: Path) -> None:
    sink = sinks.call(
        print, mode="checkable", last_written=lambda channel: answer, path=tmp_path, durable=False
    )
    sink.validate(SCHEMA)
    log = made(Outside(), tmp_path)
    with closing(opened(log)) as writer:
        writer.write(**bundle(1, 3))
    with closing(sink.writer()) as writer, pytest.raises(SinkError) as caught:
        writer.open(query=QUERY, node=5, instance=0, fence=2)
    assert f"last_written says {answer!r}, which is no position" in str(caught.value)


def test_an_answer_may_be_an_integer_of_another_library(tmp_path: Path) -> None:
    with closing(opened(made(Outside(), tmp_path))) as writer:
        writer.write(**bundle(1, 3))
    sink = sinks.call(
        print, mode="checkable", last_written=lambda channel: np.int64(3), path=tmp_path, durable=False
    )
    sink.validate(SCHEMA)
    with closing(sink.writer()) as writer:
        assert writer.open(query=QUERY, node=5, instance=0, fence=2).cursors == {CHANNEL: 3}


def test_a_checkable_sink_has_one_instance(tmp_path: Path) -> None:
    assert made(Outside(), tmp_path, "checkable").parallelism == 1
    assert made(Outside(), tmp_path, "idempotent").parallelism is None
    with (
        closing(made(Outside(), tmp_path, "checkable").writer()) as writer,
        pytest.raises(SinkError, match="one instance"),
    ):
        writer.open(query=QUERY, node=5, instance=1, fence=1)


def test_the_log_goes_into_the_checkpoint(tmp_path: Path) -> None:
    sink = sinks.call(print)
    sink.validate(SCHEMA)
    with pytest.raises(ConfigurationError, match="path="):
        sink.writer()
    with pytest.raises(QueryDefinitionError, match="s3://"):
        sink.bind("s3://bucket/checkpoint")
    sink.bind(f"file://{tmp_path}/checkpoint")
    sink = cloudpickle.loads(cloudpickle.dumps(sink))
    opened(sink).close()
    assert (tmp_path / "checkpoint" / "clonos" / "sinks" / QUERY / "5-0").is_dir()


def test_wrong_arguments_are_refused() -> None:
    for wrong in (
        {"write": 1},
        {"write": print, "mode": "other"},
        {"write": print, "mode": "checkable"},
        {"write": print, "last_written": print},
        {"write": print, "path": "s3://bucket/x"},
    ):
        with pytest.raises(QueryDefinitionError):
            sinks.call(**wrong)  # type: ignore[arg-type]
