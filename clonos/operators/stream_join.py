"""A join of two streams by key and event time: both sides, as functions of `connect(...).process`.

A row of one side meets those rows of the other one under its key whose event time differs from its own by no more than
a bound. It is kept until the watermark says that no such row can come any more; then a row of the left side that has
met none is given out alone, if that is asked for. What is late is dropped, as Spark drops it before its own join: of
what it could have met, some may be gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from clonos.operators.process import Timer
from clonos.operators.rows import instant, zone_of
from clonos.protocol.event_time import is_late

EXPIRE: Final = "expire"
"""The name of the timers."""
_LEFT, _RIGHT = "left", "right"
_MET, _ALONE = 1, 0

Kept = list[Any]
"""Of a row that waits: its event time, its values, whether it has met one."""


@dataclass(frozen=True)
class Side:
    """Of one side's rows: the column of event time, and the columns that are given out behind those of the key."""

    event_time: int
    values: tuple[int, ...]


def _plain(value: Any) -> Any:
    """A value as state keeps it: a struct is a tuple of its values."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    return {_plain(key): _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


class StreamJoin:
    """`within` is the bound in microseconds. Output rows are the key, the left side's values, the right side's."""

    def __init__(self, left: Side, right: Side, within: int, *, outer: bool, zone: str) -> None:
        self._sides = {_LEFT: left, _RIGHT: right}
        self._within = within
        self._outer = outer
        self._zone = zone_of(zone) or UTC
        self._no_values = (None,) * len(right.values)

    def left(self, key: tuple[Any, ...], row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        return self._arrives(_LEFT, key, row, ctx)

    def right(self, key: tuple[Any, ...], row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        return self._arrives(_RIGHT, key, row, ctx)

    def expired(self, key: tuple[Any, ...], timer: Timer, ctx: Any) -> Iterator[tuple[Any, ...]]:
        """The watermark has come to a row's event time and the bound behind it."""
        for name in (_LEFT, _RIGHT):
            kept = ctx.state.get(name, ())
            gone = [each for each in kept if each[0] + self._within <= timer.due_us]
            if gone:
                self._keep(name, [each for each in kept if each[0] + self._within > timer.due_us], ctx)
            if name == _LEFT and self._outer:
                yield from (key + each[1] + self._no_values for each in gone if each[2] == _ALONE)

    def _arrives(self, name: str, key: tuple[Any, ...], row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        side = self._sides[name]
        values = tuple(_plain(row[index]) for index in side.values)
        at = row[side.event_time]
        if at is None or None in key:  # equal to nothing
            if name == _LEFT and self._outer:
                yield key + values + self._no_values
            return
        moment, watermark = instant(at, self._zone), ctx.watermark
        if watermark is not None and is_late(moment, instant(watermark, UTC)):
            return
        others = ctx.state.get(_RIGHT if name == _LEFT else _LEFT, [])
        met = [each for each in others if abs(each[0] - moment) <= self._within]
        for each in met:
            each[2] = _MET
        if met:
            self._keep(_RIGHT if name == _LEFT else _LEFT, others, ctx)
        self._keep(name, [*ctx.state.get(name, ()), [moment, values, _MET if met else _ALONE]], ctx)
        ctx.timer(at=moment + self._within, name=EXPIRE, event=True)
        for each in met:
            yield key + values + each[1] if name == _LEFT else key + each[1] + values

    @staticmethod
    def _keep(name: str, rows: list[Kept], ctx: Any) -> None:
        if rows:
            ctx.state[name] = rows
        else:
            ctx.state.pop(name, None)
