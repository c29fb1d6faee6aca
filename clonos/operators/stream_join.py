"""A join of two streams by key and event time: both sides, as functions of `connect(...).process`.

A row of one side meets those rows of the other one under its key whose event time differs from its own by no more than
a bound. It is kept until the watermark says that no such row can come any more; then a row of the left side that has
met none is given out alone, if that is asked for. What is late is dropped: of what it could have met, some may be gone.
Lateness and expiry count the watermark in milliseconds, as Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

from clonos.operators.column_flow import ColumnFlow, Input, Transformation, as_they_are, through
from clonos.operators.plain_values import plain
from clonos.operators.process import Timer
from clonos.operators.rows import instant, zone_of
from clonos.protocol.event_time import ended_by, is_late
from clonos.protocol.operator import Entry, InputSetPort
from clonos.values.key_codec import pack

EXPIRE: Final = "expire"
"""The name of the timers."""
_LEFT, _RIGHT, _COLUMNS = "left", "right", "columns"
_MET, _ALONE = 1, 0

Kept = list[Any]
"""Of a row that waits: its event time, its values, whether it has met one."""
Columns = tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """Of one side's rows: the column of event time, and the columns that are given out behind those of the key."""

    event_time: int
    values: tuple[int, ...]
    names: Columns
    """Of the values."""


class StreamJoin:
    """`within` is the bound in microseconds. Output rows are the key, the left side's values, the right side's."""

    def __init__(self, left: Side, right: Side, within: int, *, outer: bool, zone: str) -> None:
        self._sides = {_LEFT: left, _RIGHT: right}
        self._columns = (left.names, right.names)
        self._within = within
        self._outer = outer
        self._zone = zone_of(zone) or UTC
        self._no_values = (None,) * len(right.values)

    def column_flow(self, keys: int) -> ColumnFlow:
        """The key is that of the left side, which the right side's equals; event times say which rows meet, too."""
        left, right = self._sides[_LEFT], self._sides[_RIGHT]
        key = as_they_are(Input.KEY, range(keys))
        met = [
            *key,
            *as_they_are(Input.RIGHT_KEY, range(keys)),
            *as_they_are(Input.ROW, [left.event_time]),
            *as_they_are(Input.RIGHT, [right.event_time]),
        ]
        return ColumnFlow(
            (*key, *as_they_are(Input.ROW, left.values), *as_they_are(Input.RIGHT, right.values)),
            frozenset().union(*(through(flow, Transformation.JOIN) for flow in met)),
        )

    def left(self, key: tuple[Any, ...], row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        return self._arrives(_LEFT, key, row, ctx)

    def right(self, key: tuple[Any, ...], row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        return self._arrives(_RIGHT, key, row, ctx)

    def expired(self, key: tuple[Any, ...], timer: Timer, ctx: Any) -> Iterator[tuple[Any, ...]]:
        """The watermark has come to where a row that waits may expire. One that does not, since the bound was another
        one when it came, is waited for anew."""
        reached = _watermark(ctx)
        assert reached is not None, "a timer of event time fires by the watermark"
        for name in (_LEFT, _RIGHT):
            rows = self._kept(name, ctx)
            left = [each for each in rows if self._due(each[0]) > reached]
            if len(left) < len(rows):
                self._keep(name, left, ctx)
            if left:
                ctx.timer(at=min(self._due(each[0]) for each in left), name=EXPIRE, event=True)
            sets = _InputSets.of(name, rows, ctx)
            if name == _LEFT and self._outer:
                gone = (each for each in rows if self._due(each[0]) <= reached)
                for each in gone:
                    if each[2] == _ALONE:
                        if sets is not None:
                            sets.row_is_of(each)
                        yield key + each[1] + self._no_values
            if sets is not None and len(left) < len(rows):
                sets.leaves(left)

    def _due(self, moment: int) -> int:
        return ended_by(moment + self._within)

    def _arrives(self, name: str, key: tuple[Any, ...], row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        side = self._sides[name]
        values = tuple(plain(row[index]) for index in side.values)
        at = row[side.event_time]
        moment = None if at is None else instant(at, self._zone)
        if moment is not None and is_late(moment, _watermark(ctx)):
            ctx._drop_late()
            return
        if moment is None or None in key:  # equal to nothing
            if name == _LEFT and self._outer:
                yield key + values + self._no_values
            return
        other = _RIGHT if name == _LEFT else _LEFT
        others = self._kept(other, ctx)
        met = [each for each in others if abs(each[0] - moment) <= self._within]
        for each in met:
            each[2] = _MET
        if met:
            self._keep(other, others, ctx)
        own = self._kept(name, ctx)
        if (sets := _InputSets.of(name, own, ctx)) is not None:
            sets.adds()
        self._keep(name, [*own, [moment, values, _MET if met else _ALONE]], ctx)
        ctx.timer(at=self._due(moment), name=EXPIRE, event=True)
        sets = _InputSets.of(other, others, ctx)
        for each in met:
            if sets is not None:
                sets.row_is_of(each)
            yield key + values + each[1] if name == _LEFT else key + each[1] + values

    def _kept(self, name: str, ctx: Any) -> list[Kept]:
        """The rows of a side that wait, with the columns that it has now."""
        columns = ctx.state.get(_COLUMNS, self._columns)
        if columns != self._columns:
            for side, before, now in zip((_LEFT, _RIGHT), columns, self._columns, strict=True):
                for each in ctx.state.get(side, ()):
                    each[1] = _rearranged(each[1], before, now)
            ctx.state[_COLUMNS] = self._columns
        rows: list[Kept] = ctx.state.get(name, [])
        return rows

    def _keep(self, name: str, rows: list[Kept], ctx: Any) -> None:
        if rows:
            ctx.state[name] = rows
            ctx.state[_COLUMNS] = self._columns
        else:
            ctx.state.pop(name, None)
            if not ctx.state.keys() - {_COLUMNS}:
                ctx.state.clear()


class _InputSets:
    """Of one side's rows under the key in hand, where it is to be found out of which records output rows are."""

    def __init__(self, port: InputSetPort, entry: Entry, rows: list[Kept]) -> None:
        self._port = port
        self._entry = entry
        self._at = {id(each): at for at, each in enumerate(rows)}
        port.holds(entry, len(rows))

    @classmethod
    def of(cls, name: str, rows: list[Kept], ctx: Any) -> _InputSets | None:
        port = ctx._services.input_sets
        return None if port is None else cls(port, (pack(ctx.key), name), rows)

    def adds(self) -> None:
        self._port.adds(self._entry)

    def row_is_of(self, each: Kept) -> None:
        self._port.rows_are_of(self._entry, self._at[id(each)])

    def leaves(self, left: list[Kept]) -> None:
        self._port.leaves(self._entry, [self._at[id(each)] for each in left])


def _rearranged(values: tuple[Any, ...], before: Sequence[str], now: Columns) -> tuple[Any, ...]:
    """A column that was added is null in the rows from before."""
    known = dict(zip(before, values, strict=True))
    return tuple(known.get(name) for name in now)


def _watermark(ctx: Any) -> int | None:
    return None if ctx.watermark is None else instant(ctx.watermark, UTC)
