"""Whether the checkpoint, the sinks and Spark's own logs tell one history, and where a start of the query goes on.

Spark, the checkpoint and every sink say which epoch committed last (`protocol.line.commit_record`). The records
are written before anything is forgotten, so the newest of them says what is certainly gone: all that lies before the
end of its epoch. From an earlier one no start can go on, unless nothing was forgotten, and then there is no record of a
later one.

- Spark's log is as new as the newest record, or newer: the query goes on from there. A record that has not been written
  for Spark's last epoch means that nothing was forgotten because of it.
- Spark's log ends with the newest record, but its files of that epoch are not those that it committed with: they are
  from another time, or damaged, and written again. If Spark has gone on behind files of another time, that is another
  history, and refused.
- Spark's log is older, but what the record names stands: only Spark's files are lost. They are written again.
- Else the checkpoint is an older copy than the sink, or has lost something. It is refused, with the difference.

What a start goes on from it makes durable first. Where Spark's log is older than that all the same, one part of the
checkpoint is an older copy than another; instances that begin as Spark's log says would begin from nothing.

What an epoch reads is said by Spark's file of its offsets alone, until its commit is recorded. Where Spark begins with
such a file and it is damaged, the start is refused: with another plan the epoch would end elsewhere than what was
recorded of it, and what is visible.

Also refused are a sink that is behind a record, or behind what it was sent in an epoch that Spark has committed and no
record tells of, since rows that were visible are gone, and two records that tell different ends of one epoch: both have
gone on from a common past. A sink's record may be older than the others, since a driver writes them one after another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import FIRST_EPOCH, NO_EPOCH, Epoch, NodeId, Origin
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.final_snapshot import FinalSnapshots
from clonos.protocol.line.known_sinks import lost_output, sinks_with_rows
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.topology import NodeKind, Topology

RESTORE = "Restore the whole checkpoint as it was after that epoch, or begin anew with a new checkpoint and a new sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is at a start. `committed` is the last epoch of Spark's commit log (`NO_EPOCH`: none), `passed` the
    last that it does not run again: it has planned the next one. The last start of the query began with epoch `begun`.
    `offsets` and `commits` are Spark's files of the epochs that a record may be about. `damaged` says what is wrong
    with offsets that Spark begins with, by epoch. `shown` are the records of the sinks that have one, `cursors` are the
    sinks', too. `snapshots` are names, by instance."""

    committed: Epoch
    passed: Epoch = NO_EPOCH
    begun: Epoch = FIRST_EPOCH
    offsets: Mapping[Epoch, bytes] = field(default_factory=dict)
    commits: Mapping[Epoch, bytes] = field(default_factory=dict)
    damaged: Mapping[Epoch, str] = field(default_factory=dict)
    kept: CommitRecord | None = None
    shown: Mapping[NodeId, CommitRecord] = field(default_factory=dict)
    cursors: Mapping[Origin, Mapping[int, int]] = field(default_factory=dict)
    snapshots: Mapping[Origin, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Course:
    """How the query goes on: behind `committed`, after Spark's files of `repair` have been written again. `newest` is
    the record to keep everywhere. Spark's commit of `completes` is lost, and no record has it: it gets the
    content of `newest`'s, which says nothing of an epoch but Spark's own watermark, and causal queries have none."""

    committed: Epoch
    newest: CommitRecord | None = None
    repair: CommitRecord | None = None
    completes: Epoch | None = None

    @property
    def commits(self) -> bytes:
        """What is written as Spark's commit of `completes`."""
        return self.newest.commits if self.newest is not None else b""

    @property
    def repairs(self) -> bool:
        """Whether something of Spark's is written."""
        return self.repair is not None or self.completes is not None


def newest_of(kept: CommitRecord | None, shown: Iterable[CommitRecord]) -> CommitRecord | None:
    """The checkpoint's record, or a sink's. Of one epoch, that of the last start; of one start, the checkpoint's."""
    records = [record for record in (kept, *shown) if record is not None]
    return max(records, key=lambda record: (record.epoch, record.generation), default=None)


def reconcile(found: Found) -> Course:
    """Raises CheckpointMismatch."""
    course = _course(found)
    _check_damage(found, course)
    if course.newest is not None and found.passed > course.committed:
        course = replace(course, committed=found.passed, completes=found.passed)
    goes_on = max(found.passed, course.committed) + 1
    if goes_on < found.begun:
        raise CheckpointMismatch(
            f"Spark's log says that the query goes on with epoch {goes_on}, but its last start has begun with epoch "
            f"{found.begun}: one part of the checkpoint is older than another",
            hint=RESTORE,
        )
    return course


def _course(found: Found) -> Course:
    newest = newest_of(found.kept, found.shown.values())
    if newest is None:
        return Course(found.committed)
    newest = newest.without_cursors_of(new_sinks(found, newest))
    _check_one_history(found)
    _check_sinks(found, newest)
    _check_snapshots(found, newest)
    if found.committed >= newest.epoch:
        return Course(found.committed, newest, repair=_other_files(found, newest))
    _check_offsets(found, newest)
    return Course(newest.epoch, newest, repair=newest)


def _other_files(found: Found, newest: CommitRecord) -> CommitRecord | None:
    """The record, where Spark's files of its epoch are not those that it holds. Raises CheckpointMismatch where Spark
    has gone on from there; damaged offsets are of no other time, though."""
    pairs = (("offsets", found.offsets, newest.offsets), ("commits", found.commits, newest.commits))
    differ = [name for name, said, was in pairs if said.get(newest.epoch, was) != was]
    if not differ:
        return None
    if found.committed > newest.epoch and not (differ == ["offsets"] and newest.epoch in found.damaged):
        raise CheckpointMismatch(
            f"Spark's file {differ[0]}/{newest.epoch} is not the one that epoch {newest.epoch} committed with, and its "
            f"log goes on to epoch {found.committed}: the file is damaged, or one part of the checkpoint is "
            "from another time than the rest",
            hint=RESTORE,
        )
    return newest


def _check_damage(found: Found, course: Course) -> None:
    for epoch, what in sorted(found.damaged.items()):
        if course.repair is None or course.repair.epoch != epoch:
            raise CheckpointMismatch(
                f"Spark's file of the offsets of epoch {epoch} is damaged: {what}",
                hint="Do not remove it: it alone says where the epoch ends in the sources, and what is recorded and "
                f"visible of the epoch has come from there. Restore it, with .{epoch}.crc beside it, from a copy, or "
                "begin anew with a new checkpoint and a new sink",
            )


def _check_one_history(found: Found) -> None:
    records = [("the checkpoint", found.kept)] if found.kept is not None else []
    records += [(f"sink node {node}", record) for node, record in sorted(found.shown.items())]
    for (place, one), (sink, other) in combinations(records, 2):
        if one.query != other.query:
            raise CheckpointMismatch(
                f"{place} is of query {one.query}, the record of {sink} of {other.query}"
            )
        if one.epoch == other.epoch and one.ends != other.ends:
            differ = sorted(
                origin
                for origin in one.ends.keys() | other.ends.keys()
                if one.ends.get(origin) != other.ends.get(origin)
            )
            raise CheckpointMismatch(
                f"{place} and {sink} tell different ends of epoch {one.epoch}, first of {_name(differ[0])}: "
                "a copy of this checkpoint has written to the sink",
                hint="Go on with that copy, or give this one a sink of its own",
            )


def new_sinks(found: Found, newest: CommitRecord) -> frozenset[NodeId]:
    """Those of which their place has nothing. The user has chosen it instead of another one, and it need not have what
    was shown there. A record in it says nothing of a sink that does not use the place: other sinks may use it."""
    known = known_sinks(found)
    return frozenset(origin.node for origin in newest.cursors if origin.node not in known)


def known_sinks(found: Found) -> set[NodeId]:
    """Those of which their place has something."""
    known = {sink for sink, record in found.shown.items() if record.is_of(sink)}
    return known | sinks_with_rows(found.cursors)


def _check_sinks(found: Found, newest: CommitRecord) -> None:
    for origin, channels in newest.cursors.items():
        for channel, number in channels.items():
            _check_shown(found, newest.epoch, origin, channel, number)


def check_last_output(
    found: Found, newest: CommitRecord, topology: Topology, epoch: Epoch, finals: FinalSnapshots
) -> None:
    """Spark has committed an epoch, and no record says so: final snapshots say what the sinks have been sent behind the
    newest record. Raises CheckpointMismatch."""
    known = known_sinks(found)
    for sink in topology.instances(NodeKind.SINK):
        for sender, final in finals.items() if sink.node in known else ():
            to = topology.destination(sender.node, sink)
            number = final.point.sent.get(to) if to is not None else None
            recorded = newest.ends.get(sender)
            if number is not None and (recorded is None or number > recorded.emitted):
                _check_shown(found, epoch, sink, sender.channel, number)


def _check_shown(found: Found, epoch: Epoch, sink: Origin, channel: int, number: int) -> None:
    at = found.cursors.get(sink, {}).get(channel, -1)
    if at < number:
        raise lost_output(_name(sink), channel, number, f"when epoch {epoch} committed", at)


def _check_snapshots(found: Found, newest: CommitRecord) -> None:
    """One that is named, or in its place one of a later epoch that Spark has committed."""
    for origin, end in sorted(newest.ends.items()):
        names = [name for text in found.snapshots.get(origin, ()) if (name := SnapshotName.parse(text))]
        later = any(name.final and newest.epoch < name.epoch <= found.committed for name in names)
        if SnapshotName.parse(end.snapshot) not in names and not later:
            raise CheckpointMismatch(
                f"{_difference(found, newest)}; the snapshot {end.snapshot} of {_name(origin)}, with which that epoch "
                "ended, is not in the checkpoint",
                hint=RESTORE,
            )


def _check_offsets(found: Found, newest: CommitRecord) -> None:
    """Spark plans the next epoch from its files of this one and reads those of the one before."""
    planned = found.offsets.get(newest.epoch) if newest.epoch not in found.damaged else None
    if planned is not None and planned != newest.offsets:
        raise CheckpointMismatch(
            f"{_difference(found, newest)}; Spark has planned epoch {newest.epoch} anew, with other offsets than it "
            "committed with",
            hint=RESTORE,
        )
    if planned is None and newest.epoch > 0 and newest.epoch - 1 not in found.offsets:
        raise CheckpointMismatch(
            f"{_difference(found, newest)}; Spark's offsets of epoch {newest.epoch - 1} are not there either",
            hint=RESTORE,
        )


def _difference(found: Found, newest: CommitRecord) -> str:
    kept = "no epoch" if found.kept is None else f"epoch {found.kept.epoch}"
    last = newest_of(None, found.shown.values())
    shown = "none" if last is None else f"epoch {last.epoch}"
    spark = "no epoch" if found.committed < 0 else f"epoch {found.committed}"
    return (
        f"the checkpoint does not hold what epoch {newest.epoch} left: Spark's log ends with {spark}, our record in "
        f"the checkpoint with {kept}, the sink has seen the commit of {shown}"
    )


def _name(origin: Origin) -> str:
    return f"node {origin.node}, instance {origin.instance}"
