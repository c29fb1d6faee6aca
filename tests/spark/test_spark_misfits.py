"""What does not fit ends the query with an error that says what, where and what to do; mended, it goes on exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from modes import in_turns, mostly
from streams import DEADLINE, Place

from clonos.errors import CheckpointMismatch, ClonosError, InputError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
INSTANCE = r"operator 'count', instance [01], epoch \d+"
MISFITS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "type": (
        ("a", "seven"),
        (r"column 'n' \(long\): row \d+ has 'seven'", "declared output schema", INSTANCE),
    ),
    "width": (("a",), (r"output \d+ of 'count' is not a row: 1 values; the fields are \(k, n\)", INSTANCE)),
    "shape": (17, (r"output \d+ of 'count' is not a row: int", "Yield or return", INSTANCE)),
}
"""What a function yields for one row, and what is said of it."""


def end_of(place: Place, kind: type[ClonosError], *says: str) -> None:
    """The query ends with this error at once: starting it again would not mend it."""
    with pytest.raises(kind) as caught:
        place.query.awaitTermination(DEADLINE)
    for words in says:
        assert caught.match(words)
    assert place.query.restarts == []


def counting(bad: Any = None) -> Any:
    """Counts per key; yields something else where n is 7."""

    def count(key: Any, row: Any, ctx: Any) -> Any:
        n = ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield bad if bad is not None and row.n == 7 else (key[0], n)

    return count


@pytest.mark.parametrize(("misfit", "mode"), in_turns(MISFITS))
def test_rows_that_do_not_fit_the_declared_schema(place: Place, mode: str, misfit: str) -> None:
    bad, says = MISFITS[misfit]
    rows = [{"k": "a", "n": n} for n in range(10)]
    place.write(rows)
    place.start(place.causal(SCHEMA).groupBy("k").process(counting(bad), SCHEMA, name="count"), mode)
    end_of(place, InputError, *says)
    place.start(place.causal(SCHEMA).groupBy("k").process(counting(), SCHEMA, name="count"), mode)
    assert sorted(row["n"] for row in place.await_rows(10)) == list(range(1, 11))


def grouped(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    import pandas as pd

    n = int(state.getOption[0]) if state.exists else 0
    for frame in frames:
        n += len(frame)
    state.update((type(n)(n),))
    yield pd.DataFrame({"k": [key[0]], "n": [n]})


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_kept_state_that_no_longer_fits_its_declared_type(place: Place, mode: str) -> None:
    def start(state: str) -> None:
        place.start(
            place.causal(SCHEMA)
            .groupBy("k")
            .applyInPandasWithState(grouped, SCHEMA, state, "update", "NoTimeout", name="count"),
            mode,
        )

    place.write([{"k": "a", "n": 0}] * 4)
    start("n long")
    place.until(lambda: any(row["n"] == 4 for row in place.rows()), "four")
    place.query.wait_for_epoch(0, 30)
    place.stop()
    shown = len(place.rows())
    place.write([{"k": "a", "n": 0}] * 4)
    for state, says in (
        ("n string", r"the state of node 2 \('count'\) has 'n' as string; it was int64"),
        ("m long", r"the state of node 2 \('count'\) has 'm' and lacks 'n', which may be the same"),
        ("n long, m long not null", r"has 'm' in addition, which may not be null"),
    ):
        with pytest.raises(
            CheckpointMismatch, match=says + r".*give the operator a new version and migrate="
        ):
            start(state)
    assert len(place.rows()) == shown
    start("n long")
    place.until(lambda: any(row["n"] == 8 for row in place.rows()), "eight")


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_state_variable_of_another_type(place: Place, mode: str) -> None:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counter(StatefulProcessor):
        def __init__(self, kept: str) -> None:
            self._schema = kept

        def init(self, handle: Any) -> None:
            self._n = handle.getValueState("n", self._schema)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timers: Any) -> Iterator[Any]:
            from pyspark.sql import Row

            n = (self._n.get()[0] if self._n.exists() else 0) + len(list(rows))
            self._n.update((n,))
            yield Row(k=key[0], n=n)

        def close(self) -> None:
            pass

    def start(kept: str) -> None:
        stream = place.causal(SCHEMA).groupBy("k")
        place.start(stream.transformWithState(Counter(kept), SCHEMA, "update", "None", name="count"), mode)

    place.write([{"k": "a", "n": 0}] * 4)
    start("n long")
    place.until(lambda: any(row["n"] == 4 for row in place.rows()), "four")
    place.query.wait_for_epoch(0, 30)
    place.stop()
    place.write([{"k": "a", "n": 0}] * 4)
    with pytest.raises(
        CheckpointMismatch, match=r"state variable 'n' of node 2 \('count'\) has 'n' as string"
    ):
        start("n string")
    start("n long")
    place.until(lambda: any(row["n"] == 8 for row in place.rows()), "eight")


def test_a_source_that_was_cut_off_ends_the_query_at_once(place: Place) -> None:
    """In the middle of an epoch that has to be run again; in real time the end of such an epoch is not known."""
    place.write([{"k": "a", "n": n} for n in range(10)], partitions=1)
    log = place.base / "in" / "0.log"

    def start(bad: Any = None) -> None:
        stream = place.causal(SCHEMA, partitions=1).groupBy("k").process(counting(bad), SCHEMA, name="count")
        place.start(stream)

    start(("a",))
    end_of(place, InputError, "is not a row")
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    start()
    end_of(place, InputError, "0.log ends at offset .* cut off. Restore it")
    log.write_bytes(whole)
    start()
    assert sorted(row["n"] for row in place.await_rows(10)) == list(range(1, 11))


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_source_that_was_cut_off_behind_a_commit_ends_the_query_at_once(place: Place, mode: str) -> None:
    place.write([{"k": "a", "n": n} for n in range(10)], partitions=1)

    def start() -> None:
        stream = place.causal(SCHEMA, partitions=1).groupBy("k").process(counting(), SCHEMA, name="count")
        place.start(stream, mode)

    start()
    place.await_rows(10)
    assert place.query.wait_for_epoch(0, 60)
    place.stop()
    log = place.base / "in" / "0.log"
    log.write_bytes(log.read_bytes()[:60])
    start()
    end_of(place, InputError, "0.log ends at offset .* cut off. Restore it .* new sink$")
