"""One step of a `Store` per bundle: rows, determinants and cursors, if the fence and the cursors stand as they should.

A step says what it expects: the fence of the query, that of this sink instance, and the position from which the bundle
goes on. A step that took effect has changed the position. So the same step, carried out a second time, is refused; and
where it is refused, the records tell why: the writer was fenced, or the step had taken effect and its answer was lost.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clonos.errors import SinkError
from clonos.protocol.fence import NO_FENCE, Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.protocol.line.sink_trim import numbers
from clonos.protocol.roles.sink_fence import Holder, check_holding, check_taking
from clonos.sinks.bundle import check_bundle
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition
from clonos.sinks.store_connection import StoreConnection
from clonos.sinks.store_log import until_taken
from clonos.sinks.store_records import Keys, Position, pack, pack_holder, unpack_floor, unpack_holder

if TYPE_CHECKING:
    from clonos.sinks.store import Store


@dataclass(frozen=True, slots=True)
class _Held:
    """The records that every step of a writer expects, as they are in the store."""

    floor: bytes | None
    holder: bytes
    position: bytes | None


@dataclass(frozen=True, slots=True)
class _Bundle:
    rows: list[Row]
    ids: list[str]
    changes: dict[str, bytes | None]
    after: bytes
    """The position that it leads to."""


class StoreWriter:
    """See `clonos.sinks.port.SinkWriter`."""

    def __init__(self, connection: StoreConnection, patience: Patience) -> None:
        self._connection, self._patience = connection, patience
        self._keys, self._origin = Keys(""), Origin.of(0, 0)
        self._query = ""
        # The same at each attempt of one writer, so that it knows what it took when it was not told.
        self._owner = secrets.token_hex(8)
        self._mine = Holder(NO_FENCE)
        self._held: _Held | None = None
        self._position = Position()

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        self._query, self._keys, self._origin = query, Keys(query), Origin(node, instance)
        self._mine = Holder(fence, self._owner)
        self._held = self._patience.run(lambda _: self._connection.run(self._take))
        self._position = Position.unpack(self._held.position, self._keys.position(self._origin))
        return SinkPosition(cursors=dict(self._position.cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if self._held is None:
            raise SinkError("a sink writer was used before it was opened")
        stands, number = self._position.cursors, self._position.next_number
        check_bundle(rows, ids, cursors, stands)
        if not (rows or deltas or any(stands.get(channel) != at for channel, at in cursors.items())):
            return
        after = Position({**stands, **cursors}, number + len(deltas))
        changes: dict[str, bytes | None] = {
            self._keys.entry(self._origin, each): pack(delta)
            for each, delta in zip(numbers(number, len(deltas)), deltas, strict=True)
        }
        place = self._keys.position(self._origin)
        content = changes[place] = after.pack()
        bundle = _Bundle(rows, [f"{self._query}/{each}" for each in ids], changes, content)
        self._held = self._patience.run(
            lambda _: self._connection.run(lambda store: self._apply(store, bundle))
        )
        self._position = after

    def counted(self) -> dict[str, float]:
        return {"sink_retries": self._patience.retries}

    def close(self) -> None:
        self._connection.close()

    def _take(self, store: Store) -> _Held:
        keys, origin = self._keys, self._origin

        def attempt() -> _Held | None:
            floor, standing, position = (store.get(key) for key in self._guards())
            holder, takings = unpack_holder(standing, keys.holder(origin))
            check_taking(self._mine, holder, floor=unpack_floor(floor, keys.floor), origin=origin)
            mine = pack_holder(self._mine, takings + 1)
            expected = dict(zip(self._guards(), (floor, standing, position), strict=True))
            taken = store.step(expected, {keys.holder(origin): mine}, [], [])
            return _Held(floor, mine, position) if taken else None

        return until_taken(attempt)

    def _apply(self, store: Store, bundle: _Bundle) -> _Held:
        def attempt() -> _Held | None:
            held = self._held
            assert held is not None
            expected = dict(zip(self._guards(), (held.floor, held.holder, held.position), strict=True))
            if store.step(expected, bundle.changes, bundle.rows, bundle.ids):
                return _Held(held.floor, held.holder, bundle.after)
            self._held = found = self._looked_up(store, held, bundle)
            return found if found.position == bundle.after else None

        return until_taken(attempt)

    def _looked_up(self, store: Store, held: _Held, bundle: _Bundle) -> _Held:
        """Why a step was refused. Raises Fenced, or gives what stands now."""
        keys, origin = self._keys, self._origin
        floor, holder, position = (store.get(key) for key in self._guards())
        raised = unpack_floor(floor, keys.floor)
        standing, _ = unpack_holder(holder, keys.holder(origin))
        if raised > self._mine.fence:
            standing = Holder(raised)
        kept_in = f"record {keys.holder(origin)} of {self._connection.place}"
        check_holding(self._mine, standing, origin=origin, kept_in=kept_in)
        if position not in (held.position, bundle.after):
            raise SinkError(
                f"{self._connection.place} has another position of sink node {origin.node}, instance "
                f"{origin.instance}, than this writer has left there",
                hint="Either it has gone back to an older copy of itself, and rows that were visible may be gone: "
                "restore it. Or another bundle came after a failed write: repeat that very bundle or open a new writer",
            )
        return _Held(floor, held.holder, position)

    def _guards(self) -> tuple[str, str, str]:
        return self._keys.floor, self._keys.holder(self._origin), self._keys.position(self._origin)
