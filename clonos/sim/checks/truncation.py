"""I7: nothing is dropped that a permitted recovery could still ask for.

What may be asked for is computed here from the checkpoint alone: after `commits/<N>`, a recovery returns to the
snapshots at the end of epoch N, and asks for logs from their offsets on; within an epoch, a replaced replica returns
to the newest snapshot, and is sent again what lies beyond it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from clonos.protocol.fence import Generation, attempt_of, generation_of
from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, Epoch, LogOffset, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.topology import NodeKind
from clonos.sim.checkpoint import Snapshots
from clonos.sim.checks.held import Held
from clonos.sim.checks.losses import readable
from clonos.sim.checks.violation import Violation
from clonos.sim.disk import LogStore

if TYPE_CHECKING:
    from clonos.sim.sinks import SinkPlace
    from clonos.sim.task import Task
    from clonos.sim.world import World


class Settled:
    """Log offsets at the end of the last epoch that no start runs again. That epoch rises, and seldom falls."""

    def __init__(self, truncation: Truncation) -> None:
        self._truncation = truncation
        self._as_of = NO_EPOCH, 0
        self._ends: dict[Origin, LogOffset] = {}

    def at(self, epoch: Epoch) -> dict[Origin, LogOffset]:
        """An instance whose snapshots are gone is not asked again for what lies before its last one. A start of the
        query from an older copy of the checkpoint may have come to the same epoch another way."""
        as_of = epoch, self._truncation.starts
        if self._as_of != as_of:
            before = self._ends if self._as_of[0] <= epoch else {}
            self._as_of, self._ends = as_of, {**before, **self._truncation.ends(epoch)}
        return self._ends


class Truncation:
    """Also keeps, for the other checkers, what stores and sink logs hold."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stores: dict[int, tuple[LogStore, int, int, Held]] = {}
        self._sinks: dict[Origin, tuple[int, int, Held]] = {}
        self._now = Settled(self)
        self._durably = Settled(self)
        self._starts: list[tuple[int, Epoch]] = []  # generations, and the first epoch of each
        self._removed: set[Origin] = set()  # whose snapshots were removed

    # ------------------------------------------------------- what is needed

    @property
    def starts(self) -> int:
        return len(self._starts)

    def query_begins(self, generation: Generation, epoch: Epoch) -> None:
        self._starts.append((generation, epoch))

    def _end(self, names: Iterable[SnapshotName], committed: Epoch) -> SnapshotName | None:
        """How an instance ended the last committed epoch that it ran: no later start has run that again."""
        return max(
            (
                name
                for name in names
                if name.final
                and name.epoch <= committed
                and not any(
                    generation_of(name.fence) < generation and epoch <= name.epoch
                    for generation, epoch in self._starts
                )
            ),
            default=None,
        )

    def snapshots_go(self, origin: Origin) -> None:
        """A fault removes them: the checker keeps how instances stood, and what was durable counts as durable."""
        self._removed.add(origin)
        self.points()
        self._durable_points()

    def have_gone(self, origin: Origin) -> bool:
        """Whether the snapshots of an instance were removed: it may begin from nothing."""
        return origin in self._removed

    def points(self) -> dict[Origin, LogOffset]:
        """Log offsets before which no recovery asks, as the checkpoint stands."""
        return self._now.at(self._world.checkpoint.settled)

    def _durable_points(self) -> dict[Origin, LogOffset]:
        """Log offsets before which no recovery would ask after a power failure either."""
        return self._durably.at(self._world.checkpoint.durably_settled)

    def ends(self, committed: Epoch) -> dict[Origin, LogOffset]:
        """Log offsets with which instances ended an epoch, of those whose snapshots are there."""
        found: dict[Origin, LogOffset] = {}
        for origin in self._world.plan.dataflow.instances(NodeKind.OPERATOR):
            kept = self._world.checkpoint.snapshots(origin).kept
            name = self._end(kept, committed)
            if name is not None:
                found[origin] = kept[name].instance.log_offset
        return found

    # --------------------------------------------------------- what is held

    def store(self, store: LogStore) -> Held:
        known = self._stores.get(id(store))
        _, version, count, held = known if known is not None else (store, -1, 0, Held())
        if version != store.version:
            version, count, held = store.version, 0, Held()
        for batch in store.batches[count:]:
            held.add_batch(store.owner, batch)
        self._stores[id(store)] = (store, version, len(store.batches), held)
        return held

    def readable(self, store: LogStore) -> Held:
        """Without what is damaged."""
        return readable(store) if store.is_damaged else self.store(store)

    def sink(self, place: SinkPlace) -> Held:
        version, count, held = self._sinks.get(place.origin, (-1, 0, Held()))
        if version != place.version:
            version, count, held = place.version, 0, Held()
        held.add_deltas(kept.raw for kept in place.log[count:])
        self._sinks[place.origin] = (version, len(place.log), held)
        return held

    # ------------------------------------------------------- what was dropped

    def store_truncated(self, store: LogStore, before: Held) -> None:
        self._nothing_needed_is_gone(f"the store of {store.owner}", before, self.store(store))

    def salvaged(self, damaged: LogStore, new: LogStore) -> None:
        """What can be read of a damaged store is in the one that is in its place."""
        where = f"what is in the place of the damaged store of {new.owner}"
        self._nothing_needed_is_gone(where, readable(damaged), readable(new))

    def sink_truncated(self, place: SinkPlace, before: Held) -> None:
        self._nothing_needed_is_gone(f"the log of sink {place.origin}", before, self.sink(place))

    def _nothing_needed_is_gone(self, where: str, before: Held, after: Held) -> None:
        truncation_points = self._durable_points()
        for origin, intervals in before.data.items():
            for start, end in intervals.beyond(truncation_points.get(origin, LOG_BEGIN)):
                if not after.covers(origin, start, end):
                    raise Violation(
                        "I7",
                        f"{where} dropped bytes {start}..{end} of the log of {origin}, which may be asked for from "
                        f"{truncation_points.get(origin, 0)} on",
                    )
        for origin, reach in before.reach.items():
            if reach > truncation_points.get(origin, 0) and after.reach.get(origin, 0) < reach:
                raise Violation("I7", f"{where} does not know any more that {origin} reached {reach}")

    def snapshots_forgotten(self, snapshots: Snapshots, before: set[SnapshotName]) -> None:
        committed = self._world.checkpoint.durably_settled
        needed = self._end(before, committed)
        if needed is not None and needed not in snapshots.kept:
            raise Violation(
                "I7", f"the snapshot of {snapshots.origin} at the end of epoch {committed} was dropped"
            )

    def conduit_forgets(self, task: Task, seq: int) -> None:
        """What a conduit forgets lies within a durable snapshot, or is visible."""
        if self._is_overtaken(task) or task.origin in self._removed:
            return
        reached = self._durable(task)
        for number, bundle in task.kept.items():
            if number > seq:
                continue
            for channel, position in zip(bundle.channels, bundle.positions, strict=True):
                if int(position) > reached.get(int(channel), -1):
                    raise Violation(
                        "I7",
                        f"{task.name} forgets bundle {number}, but record {int(position)} of channel {int(channel)} is "
                        f"durable nowhere",
                    )

    def _is_overtaken(self, task: Task) -> bool:
        """Whether a newer attempt has begun, so that no replica will ask this one's conduit for anything again."""
        claimed = self._world.checkpoint.snapshots(task.origin).claimed
        return attempt_of(claimed) > attempt_of(task.conduit.limits.fence)

    def _durable(self, task: Task) -> dict[int, int]:
        place = self._world.sinks.get(task.origin)
        if place is not None:
            return place.cursors
        kept = self._world.checkpoint.snapshots(task.origin).kept
        reached: dict[int, int] = {}
        for name, snapshot in kept.items():
            if name.epoch <= task.epoch:
                for channel, position in snapshot.instance.covered.items():
                    reached[channel] = max(position, reached.get(channel, -1))
                for channel, position, _ in snapshot.instance.pending:
                    reached[channel] = max(position, reached.get(channel, -1))
        return reached
