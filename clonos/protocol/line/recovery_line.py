"""Where the instances of a query begin when a real-time epoch is run again: a recovery line.

A set of snapshots, one per instance, is consistent when no message was received in it that was not sent (no orphan)
and, unless messages are kept, none was sent that was not received (nothing lost). Causal logging lifts the first
condition: an instance that begins behind those it has sent to repeats, from its log, exactly what they have received,
and they drop it by channel and position. The second one stands, because Spark's exchanges keep nothing: rows that an
instance does not make again, its receivers must have. So going back can only ever spread upstream, from receivers to
senders, once: there is no domino, and sources, which Spark reads again from the beginning of the epoch, end it. Each
instance takes its newest snapshot of which every row is in what its receivers begin with (`consistent_line.py`);
without one it begins where the last committed epoch ended, of which every receiver has everything.

What a chosen snapshot has received must also be repeated as it was: its senders' logs are needed up to where it had
been sent them. Where a sender's log is not known as far any more, because what held it was not synced or is lost, the
sender would do something else in that place, and the snapshot would drop that as what it has. So the line says how far
every log is needed, and an instance that cannot recover as much refuses the line.

Snapshots count only of the newest attempt that claimed an instance. What an attempt before it did may never have
happened, unless the newest one resumed from it; then it wrote that snapshot again under its own fence. A start that has
failed before all instances had attached leaves snapshots of the start before: of these, none counts that is newer than
what its own line has chosen (`RecoveryLine.counting`).

Elnozahy, Alvisi, Wang and Johnson, "A Survey of Rollback-Recovery Protocols in Message-Passing Systems", 2002.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypedDict, overload

from clonos.errors import CheckpointMismatch, SnapshotCorrupt, Where
from clonos.protocol.engine.instance_snapshot import still_awaited
from clonos.protocol.fence import Generation, generation_of
from clonos.protocol.ids import (
    LOG_BEGIN,
    NO_OUTPUT,
    Epoch,
    LogOffset,
    NodeId,
    Origin,
    OutputNumber,
    channel_origin,
)
from clonos.protocol.line.consistent_line import RestartPoint, newest_consistent_line
from clonos.protocol.line.known_sinks import sinks_with_rows
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology

_NOWHERE: Final = -1
"""The channel of no instance: of rows for a receiver that the dataflow does not have."""


@dataclass(frozen=True, slots=True)
class Point:
    """A snapshot, as far as choosing needs it."""

    name: str
    log_offset: LogOffset
    sent: Mapping[int, OutputNumber]  # by destination, the number of the last row for it
    reached: Mapping[int, int]  # by channel, the last position that is in it
    received: Mapping[Origin, LogOffset] = field(default_factory=dict)  # how far it was sent others' logs
    unkept: Mapping[int, OutputNumber] = field(default_factory=dict)  # as `sent`: what its log of that lacks
    shown: Mapping[int, int] = field(default_factory=dict)  # as `reached`: what of it a sink's store has


@dataclass(frozen=True, slots=True)
class Standing:
    """An instance: how it stood at the end of the last committed epoch, and its snapshots since, oldest first."""

    base: Point | None = None
    inside: Sequence[Point] = ()

    @property
    def sent(self) -> Mapping[int, OutputNumber]:
        return self.base.sent if self.base is not None else {}

    @property
    def reached(self) -> Mapping[int, int]:
        return self.base.reached if self.base is not None else {}

    def begins(self, resume: Resume | None) -> Point | None:
        """Where it does when it begins with `resume`; None: from nothing."""
        chosen = (point for point in self.inside if resume is not None and point.name == resume.name)
        return next(chosen, self.base)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where one instance begins, and up to where on every channel it is ahead of what will be sent to it. Where it has
    kept what it sent, rows from `unread` on are in its log that a reader lacks."""

    name: str
    awaited_input: Mapping[int, int] = field(default_factory=dict)
    unread: OutputNumber | None = None


@dataclass(frozen=True, slots=True)
class RecoveryLine:
    """Of one start of the query. An instance that is not in it begins at the end of the last committed epoch."""

    generation: Generation
    epoch: Epoch
    resumes: Mapping[Origin, Resume] = field(default_factory=dict)
    truncation_points: Mapping[Origin, LogOffset] = field(default_factory=dict)
    """Log offset of every instance at the end of the last committed epoch."""
    bases: Mapping[Origin, str] | None = None
    """The snapshot of that. A line that was written by 0.1.0 or before says nothing of it."""
    realtime: bool = False
    """Whether the start runs in real time. A line of an older version does not say so."""
    needs: Mapping[Origin, LogOffset] = field(default_factory=dict)
    """Up to where the snapshots of `resumes` depend on logs. A line of an older version does not say so."""
    programs: Mapping[Epoch, str] = field(default_factory=dict)
    """Where instances go back together: by the first epoch that it runs, a digest of each program of this start."""

    def since(self, origin: Origin) -> Since | None:
        """Which of an instance's snapshots count in this start; None: all."""
        if self.bases is None:
            return None
        base = self.bases.get(origin)
        return Since(self.generation, self.epoch, SnapshotName.parse(base) if base is not None else None)

    def counting(self, origin: Origin, inside: Iterable[Point]) -> list[Point]:
        """Which snapshots inside an epoch the next start may begin with, after this one. What this one runs from an
        earlier point, a snapshot of an older start depends on as that did it, whether this one found anything to do for
        the instance that took it or not."""
        resumes = self.resumes.get(origin)
        chosen = SnapshotName.parse(resumes.name) if resumes is not None else None
        return [point for point in inside if self._counts(SnapshotName.parse(point.name), chosen)]

    def _counts(self, name: SnapshotName | None, chosen: SnapshotName | None) -> bool:
        if name is None or generation_of(name.fence) >= self.generation:
            return True
        return chosen is not None and chosen.epoch == name.epoch and name <= chosen

    def check_epoch(self, epoch: Epoch, where: Where) -> None:
        """No epoch is run again that had committed when the line was drawn: what it began with may be gone. Raises
        CheckpointMismatch."""
        if epoch < self.epoch:
            raise CheckpointMismatch(
                f"Spark runs epoch {epoch} again, but epoch {self.epoch - 1} had committed when the query was started",
                where=where,
                hint="Spark's log in the checkpoint has been changed under the query; start it again",
            )

    def check_beginning(self, origin: Origin, log_offset: LogOffset | None, where: Where) -> None:
        """Nothing begins before the end of the last committed epoch, and nothing begins from nothing that has run: the
        log that would have to be repeated is gone. `log_offset` is that of the snapshot that was found. Raises
        SnapshotCorrupt."""
        ended = self.truncation_points.get(origin)
        if ended is None or (log_offset is not None and log_offset >= ended):
            return
        found = (
            "no snapshot is there" if log_offset is None else f"the newest snapshot is at offset {log_offset}"
        )
        raise SnapshotCorrupt(
            f"it had ended epoch {self.epoch - 1} at offset {ended} of its log, and {found}",
            where=where,
            hint="Restore the checkpoint as it was after that epoch",
        )

    def resume(self, origin: Origin, *, generation: Generation, epoch: Epoch) -> Resume | None:
        """Where an instance begins a task attempt."""
        return self.resumes.get(origin) if self._is_of(generation, epoch) else None

    def needed(self, origin: Origin, *, generation: Generation, epoch: Epoch) -> LogOffset:
        """Up to where others that begin inside the epoch depend on an instance's log."""
        return self.needs.get(origin, LOG_BEGIN) if self._is_of(generation, epoch) else LOG_BEGIN

    def _is_of(self, generation: Generation, epoch: Epoch) -> bool:
        return (generation, epoch) == (self.generation, self.epoch)


def recovery_line(
    topology: Topology,
    standings: Mapping[Origin, Standing],
    cursors: Mapping[Origin, Mapping[int, int]],
    *,
    generation: Generation,
    epoch: Epoch,
    recoveries: Recoveries | None = None,
) -> RecoveryLine:
    """`cursors` are the sinks' by channel; one that is not known counts as one that has nothing. A sink that begins at
    a snapshot, too, is among the `standings`. Where senders do not repeat what they have sent, a snapshot that has
    received it does not go with their beginning before it. Without `recoveries` all of them do."""
    recoveries = recoveries or Recoveries.of(topology, RecoveryKind.CAUSAL)
    line = newest_consistent_line(_restart_points(topology, standings, cursors, recoveries))
    chosen = {
        origin: standing.inside[line[origin.channel] - 1]
        for origin, standing in standings.items()
        if line.get(origin.channel)
    }

    def last_sent(sender: Origin, receiver: Origin) -> int:
        sent = chosen[sender].sent if sender in chosen else standings[sender].sent
        to = topology.destination(sender.node, receiver)
        return -1 if to is None else sent.get(to, -1)

    def awaited_input(origin: Origin, point: Point) -> dict[int, int]:
        senders = {channel: channel_origin(channel) for channel in point.reached}
        will_not_come = {
            channel: last_sent(sender, origin) for channel, sender in senders.items() if sender in standings
        }
        ahead = {channel: point.reached[channel] for channel in will_not_come}
        return still_awaited(ahead, will_not_come)

    def reached(receiver: Origin) -> Mapping[int, int]:
        if receiver in chosen:
            return chosen[receiver].reached
        return standings[receiver].reached if receiver in standings else cursors.get(receiver, {})

    def unread(origin: Origin, point: Point) -> OutputNumber | None:
        receivers = topology.receivers(origin.node)
        if not recoveries.by_node[origin.node].logs_messages or not receivers:
            return None
        return first_unread(point.sent, [reached(each).get(origin.channel, -1) for each in receivers])

    return RecoveryLine(
        generation,
        epoch,
        {
            origin: Resume(point.name, awaited_input(origin, point), unread(origin, point))
            for origin, point in chosen.items()
        },
        **beginnings({origin: one.base for origin, one in standings.items() if one.base is not None}),
        needs=_needs([*chosen.values(), *_kept_bases(standings, chosen, recoveries)]),
    )


class _RestartPoints(Sequence[RestartPoint]):
    """Of one instance: the end of the last committed epoch, and its snapshots since. A snapshot has a position for each
    of many channels, so only the one that was looked at last is there."""

    def __init__(
        self,
        standing: Standing,
        receivers: Sequence[int],
        *,
        senders: Collection[int],
        keeps_sent: bool,
        new: Collection[int],
    ) -> None:
        """`senders` are those that do not repeat what they have sent; `keeps_sent`: it has a log of what it has.
        Receivers that are `new` need not have what was sent before they were there."""
        self._standing, self._receivers, self._senders = standing, receivers, senders
        self._keeps_sent, self._new = keeps_sent, new
        self._last = 0, self._make(0)

    def __len__(self) -> int:
        return 1 + len(self._standing.inside)

    @overload
    def __getitem__(self, index: int) -> RestartPoint: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RestartPoint]: ...
    def __getitem__(self, index: int | slice) -> RestartPoint | Sequence[RestartPoint]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        number = range(len(self))[index]
        if number != self._last[0]:
            self._last = number, self._make(number)
        return self._last[1]

    def _make(self, number: int) -> RestartPoint:
        if not number:
            return RestartPoint(self._standing.reached, self._by_receiver(self._standing.sent))
        point = self._standing.inside[number - 1]
        sent = self._by_receiver(point.sent)
        new = {sender: at for sender, at in point.reached.items() if sender in self._senders}
        unkept = sent
        if self._keeps_sent:
            unkept = {to: at for to, at in self._by_receiver(point.unkept).items() if to not in self._new}
        return RestartPoint(point.reached, sent, unkept=unkept, unrepeatable=new)

    def _by_receiver(self, sent: Mapping[int, OutputNumber]) -> dict[int, int]:
        known = len(self._receivers)
        return {
            self._receivers[target] if target < known else _NOWHERE: number for target, number in sent.items()
        }


def _restart_points(
    topology: Topology,
    standings: Mapping[Origin, Standing],
    cursors: Mapping[Origin, Mapping[int, int]],
    recoveries: Recoveries,
) -> dict[int, Sequence[RestartPoint]]:
    """Of all instances by their channels, receivers first."""
    unrepeated = frozenset(
        origin.channel
        for origin in topology.instances(NodeKind.OPERATOR)
        if not recoveries.repeats(origin.node)
    )
    known = sinks_with_rows(cursors)
    new = frozenset(origin.channel for origin in cursors if origin.node not in known)
    points = partial(_RestartPoints, senders=unrepeated, new=new)
    found: dict[int, Sequence[RestartPoint]] = {
        origin.channel: points(standings[origin], (), keeps_sent=False)
        if origin in standings
        else [RestartPoint(reached)]
        for origin, reached in cursors.items()
    }
    for node in _receivers_first(topology):
        receivers = [receiver.channel for receiver in topology.receivers(node.number)]
        keeps_sent = recoveries.by_node[NodeId(node.number)].logs_messages
        for origin in (Origin.of(node.number, instance) for instance in range(node.parallelism)):
            found[origin.channel] = points(
                standings.get(origin, Standing()), receivers, keeps_sent=keeps_sent
            )
    return found


def first_unread(sent: Mapping[int, OutputNumber], reached: Sequence[int]) -> OutputNumber:
    """Of what an instance has sent, by destination up to which row, the first row that a reader lacks: by destination,
    `reached` is the last that it has. Behind the last row where none lacks any."""
    lacking = [reached[to] + 1 for to, number in sent.items() if to < len(reached) and reached[to] < number]
    return OutputNumber(min(lacking, default=max(sent.values(), default=NO_OUTPUT) + 1))


def _kept_bases(
    standings: Mapping[Origin, Standing], chosen: Collection[Origin], recoveries: Recoveries
) -> Iterator[Point]:
    """The beginnings of instances that repeat nothing: what they depend on is in them, perhaps of a later epoch."""
    for origin, standing in standings.items():
        base = standing.base if origin not in chosen else None
        if base is not None and not recoveries.repeats(origin.node):
            yield base


def _needs(points: Iterable[Point]) -> dict[Origin, LogOffset]:
    needs: dict[Origin, LogOffset] = {}
    for point in points:
        for origin, upto in point.received.items():
            needs[origin] = max(upto, needs.get(origin, LOG_BEGIN))
    return needs


def program_at(programs: Mapping[Epoch, str], epoch: Epoch) -> str | None:
    """Of the programs by their first epochs, the one that runs an epoch."""
    since = max((first for first in programs if first <= epoch), default=None)
    return programs[since] if since is not None else None


class Beginnings(TypedDict):
    """What a line says of where the last committed epoch ended."""

    truncation_points: dict[Origin, LogOffset]
    bases: dict[Origin, str]


def beginnings(ends: Mapping[Origin, Point]) -> Beginnings:
    """Of the snapshots with which instances ended it."""
    return {
        "truncation_points": {origin: end.log_offset for origin, end in ends.items()},
        "bases": {origin: end.name for origin, end in ends.items()},
    }


def ran_in_real_time(line: RecoveryLine | None, epoch: Epoch) -> bool:
    """Whether an epoch that has committed did, as far as the newest line there is knows."""
    return line is not None and line.realtime and epoch >= line.epoch


def since_of(line: RecoveryLine | None, origin: Origin) -> Since | None:
    """By the newest line there is, which of an instance's snapshots count; None: all."""
    return line.since(origin) if line is not None else None


def _receivers_first(topology: Topology) -> Iterator[Node]:
    """The operators, each behind those that read it."""
    left = {node.number: node for node in topology.nodes if node.kind is NodeKind.OPERATOR}
    while left:
        ready = [
            node
            for node in left.values()
            if not any(reader.number in left for reader in topology.downstream(node.number))
        ]
        for node in ready:
            del left[node.number]
            yield node
