"""What an instance tells its readers of event time where its rows trail its own watermark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from clonos.protocol.destination import Reader, Routing
from clonos.protocol.engine.output_watermarks import ALL_TOLD_EVERY, OutputWatermarks
from clonos.protocol.engine.services import CausalServices


def services() -> CausalServices:
    return cast(CausalServices, SimpleNamespace(watermark=None, epoch_watermark=None))


def reader(trails: int, parallelism: int = 2) -> Reader:
    return Reader(cast(Any, None), parallelism, has_event_time=True, trails=trails)


def test_each_reader_is_told_what_its_rows_may_be_behind() -> None:
    known = services()
    told = OutputWatermarks(Routing([reader(0), reader(30)]), known)
    assert told.due(0, at_end=False) == {}
    known.watermark = 100
    assert told.due(1, at_end=False) == {0: 100, 1: 100, 2: 70, 3: 70}
    assert told.due(2, at_end=False) == {}, "that is no news"
    assert told.with_rows([[1], [2]]) == {1: 100, 2: 70}
    told.heard()
    assert told.due(3 + ALL_TOLD_EVERY, at_end=False) == {0: 100, 1: 100, 2: 70, 3: 70}


def test_rows_of_the_operators_own_time_wait_for_the_slowest_channel() -> None:
    """They may be of the channel that is ahead; of another time, they speak for themselves."""
    known = services()

    def latest(rows: Any) -> int | None:
        return max(rows)

    readers = [
        Reader(cast(Any, None), 1, has_event_time=True, watermark_of=latest, waits=waits)
        for waits in (0, 30, None)
    ]
    told = OutputWatermarks(Routing(readers), known)
    told.produced(cast(Any, [1000]))
    assert told.due(0, at_end=False) == {2: 1000}, "the operator does not know yet how far its own has come"
    known.watermark = 100
    told.heard()
    assert told.due(1, at_end=False) == {0: 100, 1: 70}
    known.watermark = 5000
    assert told.due(2, at_end=False) == {0: 1000, 1: 1000}, "nor is it ahead of what its rows have shown"
    known.epoch_watermark = 5000
    told.begin_epoch()
    told.begin_attempt()
    assert told.due(3, at_end=True) == {0: 1000, 1: 1000, 2: 1000}, "something has come since all were told"
    told.begin_attempt()
    assert told.due(4, at_end=True) == {}, "readers knew it when the epoch began"


def test_what_readers_knew_when_the_epoch_began_is_no_news() -> None:
    known = services()
    known.watermark = known.epoch_watermark = 100
    told = OutputWatermarks(Routing([reader(30)]), known)
    assert told.due(0, at_end=True) == {}
    known.watermark = 101
    assert told.due(1, at_end=True) == {0: 71, 1: 71}


def test_a_process_that_goes_on_from_a_snapshot_tells_what_was_told_without_rows() -> None:
    """A reader that begins before it was told would wait for the next row, which may never come."""

    def latest(rows: Any) -> int | None:
        return max(rows)

    def fresh() -> OutputWatermarks:
        return OutputWatermarks(
            Routing([Reader(cast(Any, None), 3, has_event_time=True, watermark_of=latest)]), services()
        )

    told = fresh()
    told.produced(cast(Any, [500]))
    told.begin_epoch()
    told.begin_attempt()
    told.produced(cast(Any, [1000]))
    assert told.with_rows([[1]]) == {1: 1000} and told.due(0, at_end=False) == {0: 1000, 2: 1000}
    restored = fresh()
    restored.restore(told.kept)
    restored.begin_attempt()
    assert restored.due(1, at_end=False) == {0: 1000, 1: 1000, 2: 1000}
    at_the_beginning = fresh()
    at_the_beginning.restore(told.kept)
    at_the_beginning.begin_epoch()
    assert at_the_beginning.due(2, at_end=False) == {}, "all were told before the epoch ended"
    other = OutputWatermarks(Routing([reader(0), reader(30)]), services())
    other.restore(told.kept)
    assert other.kept == [(None, None), (None, None)]
