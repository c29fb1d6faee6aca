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


def test_what_readers_knew_when_the_epoch_began_is_no_news() -> None:
    known = services()
    known.watermark = known.epoch_watermark = 100
    told = OutputWatermarks(Routing([reader(30)]), known)
    assert told.due(0, at_end=True) == {}
    known.watermark = 101
    assert told.due(1, at_end=True) == {0: 71, 1: 71}
