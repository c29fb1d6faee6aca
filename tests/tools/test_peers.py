"""What the comparison with other systems rests on: following the log, what counts as visible, and the figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos.sources.log_writer import LogWriter
from clonos.testing.ledger import extend


@pytest.fixture(autouse=True)
def kit(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The benchmarks' modules can be imported."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    yield


def ledger_rows(ids: list[int], draw: int = 0, state: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    state = {} if state is None else state
    return [extend(state, "k", str(number), draw, 0).row() for number in ids]


def course(**given: Any) -> Any:
    from peers_kit.figures import Course

    usual = {"warm": 1, "live": 3, "burst_at": 10.0, "sent": [20.0, 21.0], "begin": 0.0, "end": 99.0}
    return Course(**({"strike": None} | usual | given))


def test_a_tail_goes_on_where_another_was_and_leaves_alone_what_is_not_complete(tmp_path: Path) -> None:
    from peers_kit.tail import Tail

    with LogWriter(tmp_path, 1) as writer:
        writer.append_many(0, [b"a", b"bb"])
    first = Tail(str(tmp_path), 0)
    assert first.next() == [b"a", b"bb"]
    with LogWriter(tmp_path, 1) as writer:
        writer.append(0, b"ccc")
    path = tmp_path / "0.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    second = Tail(str(tmp_path), 0, first.position)
    assert second.next() == []
    path.write_bytes(whole)
    assert second.next() == [b"ccc"]
    assert second.next() == []


def test_a_file_is_visible_once_it_has_its_name(tmp_path: Path) -> None:
    from peers_kit.visible import FolderReader

    reader = FolderReader(tmp_path)
    hidden = tmp_path / ".part-0.inprogress"
    hidden.write_text(json.dumps(["k", 1]) + "\n")
    assert list(reader.fresh()) == []
    hidden.rename(tmp_path / "part-0")
    assert list(reader.fresh()) == [("k", 1)]
    assert list(reader.fresh()) == []


def test_figures_of_a_run_without_fault() -> None:
    from peers_kit.figures import figures

    found = figures(ledger_rows([0, 1, 2, 3, 4]), [5.0, 11.0, 12.0, 20.5, 21.5], course())
    assert found.throughput == 1.0
    assert found.p50_ms == 500.0
    assert (found.missing, found.repeated, found.contradicted, found.broken) == (0, 0, 0, 0)


def test_what_is_shown_anew_contradicts_and_counts_for_latency_only_once() -> None:
    from peers_kit.figures import figures

    state: dict[str, Any] = {}
    shown = ledger_rows([0, 1, 2], state=state)
    again = ledger_rows([3], draw=1, state=dict(state))
    rows = [*shown, *ledger_rows([3], state=state), *again]
    found = figures(rows, [5.0, 11.0, 12.0, 20.5, 29.0], course())
    assert (found.missing, found.contradicted) == (1, 1)
    assert found.p50_ms == 500.0


def test_recovery_is_that_of_the_steady_input() -> None:
    from peers_kit.figures import figures

    sent = [100.0 + number / 10 for number in range(300)]
    # For three seconds
    held = [max(moment + 0.1, 113.0) if moment >= 110 else moment + 0.1 for moment in sent]
    rows = ledger_rows(list(range(303)))
    found = figures(rows, [5.0, 11.0, 12.0, *held], course(sent=sent, begin=100.0, end=130.0, strike=110.05))
    assert found.kept_pace
    assert found.silent_s == pytest.approx(3.0, abs=0.2)
    assert found.recovery_s == pytest.approx(3.0, abs=0.2)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2.0, 1.0, 4.0], "2.0 [1.0 .. 4.0]"),
        ([1.0, 1.0], "1.0"),
        ([None, 3.0], "3.0, 1 of 2 runs"),
        ([None], "-"),
    ],
)
def test_spread(values: list[float | None], text: str) -> None:
    from peers_kit.figures import spread

    assert spread(values, "{:.1f}") == text
