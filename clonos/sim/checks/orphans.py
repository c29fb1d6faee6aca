"""I1: at every moment, an instance or a sink that depends on an event which is not stable holds its determinant.

Dependence is computed by the simulator along the records that were consumed. What is held is read from the bytes of
stores and sink logs. A disk that was lost or damaged takes with it what its owner held; then another holder must have
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from clonos.protocol.fence import attempt_of, generation_of
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, channel_origin, epoch_after
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.topology import NodeKind
from clonos.sim.checks.effects import Effects, LogsOfHost
from clonos.sim.checks.held import Held, entries_of
from clonos.sim.checks.losses import Losses
from clonos.sim.checks.truncation import Truncation
from clonos.sim.checks.truth import Truth
from clonos.sim.checks.violation import Violation
from clonos.sim.disk import LogStore
from clonos.sim.plan import FORGETTING, Fault
from clonos.sim.records import Tag

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.operator_host import OperatorHost
    from clonos.sim.sinks import SinkPlace
    from clonos.sim.task import Task
    from clonos.sim.world import World


class Orphans:
    """See the module."""

    def __init__(
        self, world: World, truth: Truth, truncation: Truncation, losses: Losses, effects: Effects
    ) -> None:
        self._world = world
        self._effects = effects
        self._truth = truth
        self._truncation = truncation
        self._losses = losses
        self._distances: dict[tuple[int, int], int] = {}
        self._told: dict[tuple[Origin, int], LogOffset] = defaultdict(lambda: LOG_BEGIN)
        self._line: RecoveryLine | None = None
        self._needs: dict[Origin, LogOffset] = {}  # of the snapshots that instances may resume from by that
        self._acts: list[tuple[LogsOfHost, Mapping[Origin, LogOffset]]] = []

    # ------------------------------ who depends on an event holds its determinant

    def emits(self, host: OperatorHost, depends: Mapping[Origin, LogOffset]) -> None:
        if not self._world.recoveries.repeats(host.origin.node):
            return  # nothing of it leaves before a checkpoint that has it
        held = self._truncation.store(host.store)
        self._must_hold(f"{host.origin} emits", host.origin, held, depends, host.depends_directly)

    def takes_checkpoint(self, host: OperatorHost, snapshot: Snapshot) -> None:
        """Of an instance that does not repeat what it did: what it depends on is in it, or was given up before."""
        held = Held()
        held.add_deltas(snapshot.kept_deltas)
        depends = {origin: upto for origin, upto in host.depends.items() if origin != host.origin}
        self._must_hold(
            f"a checkpoint of {host.origin}", host.origin, held, depends, host.depends_directly, depth=FULL
        )

    def shows(self, place: SinkPlace, tag: Tag) -> None:
        held = self._truncation.sink(place)
        self._must_hold(f"sink {place.origin} shows a row", place.origin, held, tag.depends, directly(tag))
        self._becomes_visible(tag.depends)

    def _becomes_visible(self, depends: Mapping[Origin, LogOffset]) -> None:
        visible = self._truth.visible
        for origin, offset in depends.items():
            visible[origin] = max(visible[origin], offset)

    def told(self, task: Task, log_end: LogOffset) -> None:
        """A conduit has read an increment of the log."""
        attempt = (task.origin, attempt_of(task.conduit.limits.fence))
        self._told[attempt] = max(self._told[attempt], log_end)

    def acts(self, host: OperatorHost, store: LogStore) -> None:
        """An effect is output: all that it depends on has been made to survive the host, and where it has a standby
        elsewhere, the conduit has it, for the standby. Nothing that goes on later may be without it."""
        depends = {**host.depends, host.origin: host.live.log_offset}
        held = self._truncation.store(store)
        self._must_hold(f"{host.origin} acts", host.origin, held, depends, host.depends_directly)
        if not store.is_synced:
            raise Violation("I1", f"{host.origin} acts on the outside before its log is stable")
        told = self._told[host.origin, attempt_of(host.hello.fence)]
        if self._world.may_have_moved and told < host.live.log_offset:
            raise Violation(
                "I1",
                f"{host.origin} acts on the outside at log offset {host.live.log_offset}, but its conduit has its log "
                f"only up to {told}",
            )
        if not any(kind in FORGETTING for kind, _ in self._world.plan.rates):
            self._acts.append((self._effects.logs(host.server_at), depends))

    def _must_hold(
        self,
        who: str,
        owner: Origin,
        held: Held,
        depends: Mapping[Origin, LogOffset],
        depends_directly: Mapping[Origin, LogOffset],
        depth: int | None = None,
    ) -> None:
        """`depends_directly` is how far it depends on the logs of those that have sent it records, by these records.
        Logs are shared to `depth`; None: to that of the run."""
        truncation_points = self._truncation.points()
        depth = self._world.plan.depth if depth is None else depth
        if depth > 0:
            for origin, upto in depends_directly.items():
                start = truncation_points.get(origin, LOG_BEGIN)
                if start < upto and not held.covers(origin, start, upto):
                    self._misses(who, origin, held, start, upto)
        for origin, upto in depends.items():
            start = truncation_points.get(origin, LOG_BEGIN)
            if start >= upto or held.covers(origin, start, upto):
                continue
            if self._distance(origin, owner) > depth and held.reach.get(origin, 0) >= upto:
                continue
            self._misses(who, origin, held, start, upto)

    def _misses(self, who: str, origin: Origin, held: Held, start: LogOffset, upto: LogOffset) -> None:
        if not all(self._is_excused(origin, *piece) for piece in held.missing(origin, start, upto)):
            raise Violation(
                "I1",
                f"{who}, which depends on the log of {origin} up to {upto}, but does not hold all of it from "
                f"{start} on",
            )

    def _is_excused(self, origin: Origin, start: LogOffset, upto: LogOffset) -> bool:
        """An instance or a sink that depends on a piece of a log need not hold it where it was lost. With an unbounded
        sharing depth another holder must have it then, unless it is in what was damaged."""
        if not self._losses.explains(origin, start, upto):
            return False
        if self._world.plan.depth < 1 << 30:
            return True
        return self._losses.held_anywhere(damaged=True)[origin].covers(start, upto)

    def _distance(self, origin: Origin, owner: Origin) -> int:
        """Hops from a log's origin downstream to its holder, on the longest way: the row that it depends by may be the
        only one that has come."""
        known = self._distances.get((origin.node, owner.node))
        if known is None:
            known = max(map(len, self._world.plan.dataflow.ways(origin.node, owner.node)))
            self._distances[origin.node, owner.node] = known
        return known

    # ------------------------------------ nothing that counts depends on what is gone

    def line_drawn(self, line: RecoveryLine) -> None:
        """Instances may begin from these snapshots: with their state, and the records that wait in them."""
        needs: dict[Origin, LogOffset] = {}
        for origin, resume in line.resumes.items():
            kept = self._world.checkpoint.snapshots(origin).kept
            snapshot = next(one for name, one in kept.items() if str(name) == resume.name)
            waiting = (row[3].depends for _, _, row in snapshot.instance.pending)
            for depends in (snapshot.depends, *waiting):
                for other, upto in depends.items():
                    needs[other] = max(upto, needs.get(other, LOG_BEGIN))
        self._line, self._needs = line, needs

    def restores(self, host: OperatorHost, hello: AttachRequest, upto: LogOffset) -> None:
        """An instance goes on from here; whatever was beyond never happened."""
        self.parts(host, hello, upto)
        if not hello.fresh:
            return
        self._check_resumed(host.origin, hello, upto)
        for store in self._stores_that_count(host.disks_restored):
            reach = self._truncation.readable(store).reach.get(host.origin, 0)
            if reach > upto and self._may_go_on(store, host.origin, upto):
                raise Violation(
                    "I1",
                    f"{host.origin} goes on at log offset {upto}, but {store.owner} holds determinants up to {reach}",
                )

    def _check_resumed(self, origin: Origin, hello: AttachRequest, upto: LogOffset) -> None:
        line, needed = self._line, self._needs.get(origin, LOG_BEGIN)
        is_of_it = line is not None and (line.generation, line.epoch) == (hello.generation, hello.epoch)
        if is_of_it and upto < needed:
            raise Violation(
                "I1",
                f"{origin} goes on at log offset {upto}, but a snapshot from which another instance may resume depends "
                f"on it up to {needed}",
            )

    def _may_go_on(self, store: LogStore, origin: Origin, upto: LogOffset) -> bool:
        """Whether what a store holds of a log may go on what happened. An old copy of a disk holds what an instance did
        before it did something else instead; what depends on that is in no snapshot."""
        if not self._world.plan.may(Fault.OLD_DISK):
            return True
        happened = self._truth.logs[origin][:upto]
        deltas = (raw for batch in store.batches if not batch.damaged for raw in batch.deltas)
        held = (said for raw in deltas for said in entries_of(raw) if said.origin == origin and said.data)
        return all(
            happened[said.start : said.end] == (said.data or b"")[: max(upto - said.start, 0)]
            for said in held
        )

    def parts(self, host: OperatorHost, hello: AttachRequest, upto: LogOffset) -> None:
        """What an instance goes on with is another history from here on. Stores may hold either: of two that differ
        nothing is put together."""
        origin = host.origin
        needed = max(self._truth.visible[origin], self._acted(origin))
        if needed > upto:
            raise Violation(
                "I1",
                f"{origin} goes on at log offset {upto}, but what is visible depends on it up to {needed}",
            )
        for other in self._world.replicas():
            depends = getattr(other.host, "depends", {})
            if (
                other.origin != origin
                and generation_of(other.fence) == hello.generation
                and depends.get(origin, 0) > upto
            ):
                raise Violation(
                    "I1",
                    f"{origin} goes on at log offset {upto}, but {other.name} depends on it up to {depends[origin]}",
                )

        self._check_checkpoints(origin, upto)

    def _check_checkpoints(self, origin: Origin, upto: LogOffset) -> None:
        """An instance that does not repeat what it did begins with its newest checkpoint: that depends on what is."""
        recoveries, checkpoint = self._world.recoveries, self._world.checkpoint
        for other in self._world.plan.dataflow.instances(NodeKind.OPERATOR):
            if other == origin or recoveries.repeats(other.node):
                continue
            inside = checkpoint.snapshots(other).inside_of_all_attempts(epoch_after(checkpoint.passed))
            newest = checkpoint.snapshots(other).named(inside[-1].name) if inside else None
            if newest is not None and newest.depends.get(origin, LOG_BEGIN) > upto:
                raise Violation(
                    "I1",
                    f"{origin} goes on at log offset {upto}, but the newest checkpoint of {other} depends on it up to "
                    f"{newest.depends[origin]}",
                )

    def _acted(self, origin: Origin) -> int:
        """Up to where effects depend on a log, of which the logs count."""
        return max(
            (depends.get(origin, 0) for logs, depends in self._acts if self._effects.count(logs)), default=0
        )

    def _stores_that_count(self, disks_restored: Sequence[int]) -> Iterable[LogStore]:
        """Not those of a host without which the query goes on since its driver could not reach it: what they hold may
        be ignored as long as nothing visible depends on it. Nor those of a host that came back with an old copy of its
        disk after the instance had begun, which therefore does not know what the copy holds."""
        for at, disk in enumerate(self._world.disks):
            if self._world.counts(at) and disk.times_restored == disks_restored[at]:
                yield from disk.stores.values()


def directly(tag: Tag) -> dict[Origin, LogOffset]:
    """How far the receiver of a record depends on the log of its sender by this record."""
    sender = channel_origin(tag.channel)
    return {sender: tag.depends[sender]} if sender in tag.depends else {}
