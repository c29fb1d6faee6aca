"""What was lost: pieces of logs that some store or sink's log held, and that cannot be read there any more.

Kept by comparing what can be read before and after each fault, so that no more is excused than really was there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.holding import Damage
from clonos.sim.checks.held import Held, Intervals
from clonos.sim.disk import LogStore

if TYPE_CHECKING:
    from clonos.sim.sinks import SinkPlace
    from clonos.sim.world import World

Place: TypeAlias = tuple[str, Origin]
"""A host, or the sinks, and whose store or log it is."""


class Losses:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lost: dict[Origin, Intervals] = defaultdict(Intervals)
        self._damaged: dict[Origin, Intervals] = defaultdict(Intervals)

    @contextmanager
    def watched(self, *, damage: bool = False) -> Iterator[None]:
        """Logs are lost in this block. With `damage`, their bytes are still there, but cannot be read."""
        before = self._everything()
        yield
        after = self._everything()
        for place, held in before.items():
            left = after.get(place, Held())
            for origin, known in held.data.items():
                for start, end in known.without(left.data.get(origin)):
                    self._lost[origin].add(start, end)
                    if damage:
                        self._damaged[origin].add(start, end)

    def explains(self, origin: Origin, start: LogOffset, end: LogOffset) -> bool:
        """Whether all of this was lost somewhere."""
        return self._lost[origin].covers(start, end)

    def held_anywhere(self, *, damaged: bool) -> dict[Origin, Intervals]:
        """What can be read of every log in all stores and sink logs; with `damaged`, or could be without the damage."""
        found: dict[Origin, Intervals] = defaultdict(Intervals)
        known = [held.data for held in self._everything().values()]
        for data in [*known, self._damaged] if damaged else known:
            for origin, intervals in data.items():
                for span in intervals.spans:
                    found[origin].add(*span)
        return found

    def may_hide(self, origin: Origin) -> bool:
        """Whether what is damaged now may say more about the log of this instance than what can be read does."""
        if any(kept.damaged for place in self._world.sinks.values() for kept in place.log):
            return True
        damages = (
            Damage("a store", store.owner, store.acts) for store in self._world.stores() if store.is_damaged
        )
        return any(damage.may_say(origin) for damage in damages)

    def _everything(self) -> dict[Place, Held]:
        found = {
            (disk.holder, store.owner): readable(store)
            for disk in self._world.disks
            for store in disk.stores.values()
        }
        found |= {("sinks", place.origin): readable_sink(place) for place in self._world.sinks.values()}
        return found


def readable(store: LogStore) -> Held:
    """What a store can say."""
    held = Held()
    for batch in store.batches:  # not `store.readable`, which is a part of what is checked
        if not batch.damaged:
            held.add_batch(store.owner, batch)
    return held


def readable_sink(place: SinkPlace) -> Held:
    """What a sink's log can say."""
    held = Held()
    held.add_deltas(kept.raw for kept in place.log if not kept.damaged)
    return held
