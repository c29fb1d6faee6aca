"""The last check before anything becomes visible.

A row's id names its origin and output number: `<node>-<instance>-<position>`. On every channel the output numbers of a
bundle must go up, start beyond the cursor, and end at or before the cursor that the bundle brings. A bundle that breaks
this would repeat, reorder or lose output, so it is refused, whatever made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos.errors import SinkError, Where
from clonos.protocol.ids import channel_id
from clonos.sinks.port import Cursors, Row


def channel_of(row_id: str) -> int:
    """The channel that a row id names."""
    node, instance, _ = _split(row_id)
    try:
        return channel_id(node, instance)
    except ValueError as error:
        raise SinkError(f"row id {row_id!r} names no channel: {error}") from None


def position_of(row_id: str) -> int:
    """The output number that a row id names."""
    return _split(row_id)[2]


def _split(row_id: str) -> tuple[int, int, int]:
    try:
        node, instance, position = (int(part) for part in row_id.split("-"))
    except ValueError:
        raise SinkError(f"a row id must read <node>-<instance>-<position>, not {row_id!r}") from None
    return node, instance, position


def check_counts(rows: Sequence[Row], ids: Sequence[str]) -> None:
    """Raise SinkError unless each row has an id."""
    if len(rows) != len(ids):
        raise SinkError(f"a bundle of {len(rows)} rows came with {len(ids)} ids")


def check_bundle(
    rows: Sequence[Row], ids: Sequence[str], cursors: Mapping[int, int], stands: Cursors
) -> None:
    """Raise SinkError unless the bundle continues exactly where `stands` ends."""
    check_counts(rows, ids)
    for channel, position in cursors.items():
        if position < stands.get(channel, -1):
            raise SinkError(
                f"a cursor steps back from {stands[channel]}", where=Where(channel=channel, position=position)
            )
    reached: dict[str, int] = {}
    for row_id in ids:
        origin, _, number = row_id.rpartition("-")
        try:
            position = int(number)
        except ValueError:
            _split(row_id)
            raise
        last = reached.get(origin)
        if last is None:
            last = stands.get(channel_of(row_id), -1)
        if position <= last:
            raise _repeated(row_id, last)
        reached[origin] = position
    for origin, position in reached.items():
        channel = channel_of(f"{origin}-{position}")
        if position > cursors.get(channel, -1):
            raise SinkError(
                f"row {origin}-{position} lies beyond the cursor that came with it",
                where=Where(channel=channel, position=position),
            )


def _repeated(row_id: str, last: int) -> SinkError:
    return SinkError(
        f"output {row_id} would become visible twice: its channel already stands at {last}",
        where=Where(channel=channel_of(row_id), position=position_of(row_id)),
    )
