"""Which program ran which epoch, and from which epoch on a changed one takes over.

A checkpoint keeps its *bindings* as a history: programs, each with the epoch from which on it runs. A changed program
takes over at an epoch boundary, at the first epoch of which nothing can have been seen. Whatever can have been seen has
to be repeated as it was, so by the program that did it: a new program that starts while such an epoch is open must have
the function of that version beside its own (`previous`), and may not differ in anything else that an epoch depends on.

What counts as seen is decided for safety: what is in a sink or its log behind the last commit, and any recorded step
behind it, in any store. That an epoch has only begun (its BOUNDARY is recorded) does not count as seen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from clonos.errors import CheckpointMismatch, LogCorrupt
from clonos.protocol.ids import (
    FIRST_EPOCH,
    LOG_BEGIN,
    NO_OUTPUT,
    Epoch,
    LogOffset,
    NodeId,
    Origin,
    OutputNumber,
    channel_origin,
    epoch_after,
    epoch_before,
)
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta import decode_delta
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.topology import Node, NodeKind, StateVariable, Topology
from clonos.protocol.versions.binding import PLACES, Change, Unused, When, compare, place_of, state_said
from clonos.protocol.versions.kind_of_version import said_by_user
from clonos.protocol.versions.state_evolution import Fields, fields_of, is_prefix, moved

TO_THE_END: Final = (
    "until the epoch has committed, with .trigger(availableNow=True) if its recovery is for micro-batch, too, else in "
    "real time as it was; then this one"
)
"""How a program finishes the open epoch, before another one is started."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Under which version of its function an operator runs an epoch: (first epoch, version), in order; of which state
    variables a version brings up to date what another one has left; and how each version keeps them."""

    entries: tuple[tuple[Epoch, str], ...] = ((FIRST_EPOCH, ""),)
    migrates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Fields]] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """Which a log does not name."""
        return self.entries[0][1]

    def at(self, epoch: Epoch) -> str:
        return next((version for since, version in reversed(self.entries) if since <= epoch), self.first)

    def moved(self, before: str, version: str) -> dict[str, Fields]:
        """The state variables that a version keeps by name, of what the one before it has left: their fields before."""
        return moved(self.fields.get(before, {}), self.fields.get(version, {}))

    @classmethod
    def always(cls, version: str) -> Schedule:
        """One version runs all epochs."""
        return cls(((FIRST_EPOCH, version),))


@dataclass(frozen=True, slots=True)
class Binding:
    """A program, and the first epoch that it runs. `digest` tells it from others: it stays what it is where the program
    is started again with what changes nothing of what its epochs do, as another function beside it."""

    since: Epoch
    program: Topology
    digest: str

    @classmethod
    def of(cls, since: Epoch, program: Topology) -> Binding:
        """Of a program that has run no epoch."""
        return cls(since, program, _digest(program))


@dataclass(frozen=True, slots=True)
class History:
    """The bindings of a checkpoint, in order."""

    bindings: tuple[Binding, ...]

    @classmethod
    def of(cls, program: Topology) -> History:
        return cls((Binding.of(FIRST_EPOCH, program),))

    def at(self, epoch: Epoch) -> Topology:
        """The program that runs an epoch."""
        return next(
            (one.program for one in reversed(self.bindings) if one.since <= epoch), self.bindings[0].program
        )

    def digests(self) -> dict[Epoch, str]:
        """Of each program, by the first epoch that it runs."""
        return {one.since: one.digest for one in self.bindings}

    def changes_at(self, epoch: Epoch) -> bool:
        """Whether it is the first one of another program: then the steps recorded inside it are of the one before."""
        return any(one.since == epoch for one in self.bindings[1:])

    def unused(self, epoch: Epoch) -> Unused:
        """State variables that the program of an epoch does not declare, and one of those before it did."""
        left: dict[int, dict[str, StateVariable]] = {}
        for one in self.bindings:
            for node in one.program.nodes if one.since <= max(epoch, 0) else ():
                left.setdefault(node.number, {}).update({each.name: each for each in node.state or ()})
        for node in self.at(epoch).nodes:
            for variable in node.state or ():
                left[node.number].pop(variable.name, None)
        return left

    def schedule(self, node: NodeId) -> Schedule:
        entries: list[tuple[Epoch, str]] = []
        migrates: dict[str, frozenset[str]] = {}
        fields: dict[str, dict[str, Fields]] = {}
        for one in self.bindings:
            bound = one.program.node(node)
            if not entries or entries[-1][1] != bound.version:
                entries.append((one.since, bound.version))
            migrates[bound.version] = migrates.get(bound.version, frozenset()) | bound.migrates
            fields[bound.version] = fields_of(bound.state)
        return Schedule(tuple(entries), migrates, fields)

    def to_document(self) -> list[dict[str, Any]]:
        return [
            {"since": one.since, "program": one.program.to_document(), "digest": one.digest}
            for one in self.bindings
        ]

    @classmethod
    def from_document(cls, said: Iterable[Mapping[str, Any]]) -> History:
        """Raises CheckpointMismatch. An older document says no digests."""
        programs = [(one, Topology.from_document(one["program"])) for one in said]
        return cls(
            tuple(
                Binding(Epoch(one["since"]), program, one.get("digest", _digest(program)))
                for one, program in programs
            )
        )


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """The epoch behind the last committed one: its number, whether anything of it may have been recorded, and up to
    which epoch something may have been seen. In real time the next one may run before it is committed."""

    number: Epoch
    begun: bool
    seen: Epoch


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What becomes of a checkpoint that a program is started over. Before the history is written, what is recorded of
    the open epoch has to go where it `drops` that."""

    history: History
    changes: tuple[Change, ...]
    since: Epoch
    drops: bool

    @property
    def later(self) -> tuple[Change, ...]:
        """What takes effect from epoch `since` on."""
        return tuple(change for change in self.changes if change.when is When.EPOCH)


def take_over(history: History, program: Topology, epoch: OpenEpoch, *, same_source: bool = False) -> Upgrade:
    """Raises CheckpointMismatch, with everything that stands against it. `same_source`: a source that is at another
    place has the same records."""
    changes = taken(history, epoch.seen, program, same_source=same_source)
    later = any(change.when is When.EPOCH for change in changes)
    for number in map(Epoch, range(epoch.number, epoch.seen + 1)):
        _check_repeatable(number, history.at(number), program)
        _check_migrated_alike(number, history, program)
    since = epoch_after(epoch.seen)
    kept = [one for one in history.bindings if one.since < since or one.since == 0]
    begun_unseen = epoch.begun and epoch.seen < epoch.number
    # Not by the program that goes on, but by one that was to take over with it.
    later = later or (begun_unseen and len(kept) < len(history.bindings))
    if later and since > 0:
        made = (*kept, Binding.of(since, program))
    else:  # as it was, with what an older format did not say and what changes at once
        last = kept[-1]
        runs = _with_what_was_migrated(last.program, program)
        # The first epoch may not have begun, and then another program may be the first.
        made = (*kept[:-1], Binding.of(last.since, runs) if later else replace(last, program=runs))
    return Upgrade(History(made), tuple(changes), since, drops=later and begun_unseen)


def changed(history: History, epoch: Epoch, program: Topology, *, same_source: bool = False) -> list[Change]:
    """What the program changes of the one that runs an epoch."""
    changes = [
        replace(change, when=When.AT_ONCE) if same_source and change.what in PLACES else change
        for change in compare(history.at(epoch), program, history.unused(epoch))
    ]
    return changes + [
        change for node in program.nodes if node.state for change in _versions_used_again(history, node)
    ]


def _versions_used_again(history: History, node: Node) -> Iterator[Change]:
    """What an instance has kept says only by which version: the fields of one are the same for good, but for more."""
    now = fields_of(node.state)
    for one in history.bindings:
        bound = next((each for each in one.program.nodes if each.number == node.number), node)
        before = fields_of(bound.state)
        for name in before.keys() & now.keys() if bound.version == node.version else ():
            if not is_prefix(before[name], now[name]) and not is_prefix(now[name], before[name]):
                says = f"is used again: with it {state_said(name)} had the fields {', '.join(before[name])}"
                todo = "give the operator another version"
                yield Change(place_of(node), f"version {node.version!r}", says, When.REFUSED, todo)


def taken(history: History, epoch: Epoch, program: Topology, *, same_source: bool = False) -> list[Change]:
    """What the program changes. Raises CheckpointMismatch where no epoch can begin with one of these."""
    changes = changed(history, epoch, program, same_source=same_source)
    refused = [change for change in changes if change.when is When.REFUSED]
    if refused:
        raise refusal(refused)
    return changes


def another_query(
    history: History, program: Topology, *, same_source: bool = False
) -> CheckpointMismatch | None:
    """What stands against a program where it can go on from none that the checkpoint had. One that was written down may
    never have run, so that which of them it has to go on from is decided when all is known of the open epoch."""
    why = None
    for one in reversed(history.bindings):
        try:
            taken(history, one.since, program, same_source=same_source)
        except CheckpointMismatch as error:
            why = why or error
        else:
            return None
    return why


def refusal(refused: Iterable[Change]) -> CheckpointMismatch:
    """All of it in one, each with what to do."""
    changes = list(refused)
    said = "; ".join(f"{change} ({change.todo})" if change.todo else str(change) for change in changes)
    return CheckpointMismatch(f"the checkpoint cannot be continued by this program: {said}")


def _check_repeatable(epoch: Epoch, bound: Topology, program: Topology) -> None:
    """Whether a program can repeat an epoch that another one has begun."""
    waits = [change for change in compare(bound, program) if change.when is When.EPOCH]
    # First of what no function of an older version helps against: else its hint would lead to the next refusal.
    for change in sorted(waits, key=lambda change: change.node is not None):
        if change.node is None:
            raise _begun(epoch, f"{change}, which can take effect only when that epoch is over")
        old, new = bound.node(change.node), program.node(change.node)
        if old.version == new.version:
            raise _begun(epoch, f"{change}, and a function that changes needs a new version")
        if old.version not in new.previous:
            raise _begun(
                epoch, f"version {old.version!r} of {old.name!r} has to repeat it", missing=old.version
            )


def _check_migrated_alike(epoch: Epoch, history: History, program: Topology) -> None:
    """Whether the first epoch of a version, which has to be repeated, can bring up to date what the one before left."""
    for bound in history.at(epoch).nodes:
        schedule = history.schedule(bound.number)
        if (
            bound.kind is not NodeKind.OPERATOR
            or epoch == 0
            or schedule.at(epoch_before(epoch)) == bound.version
        ):
            continue
        given = program.node(bound.number).brings_up_to_date(bound.version)
        if schedule.migrates[bound.version] - given:
            raise lacks_migrate(bound.name, bound.version, f"epoch {epoch} was begun by it")


def lacks_migrate(name: str, version: str, why: str) -> CheckpointMismatch:
    """The state is of another version, and would be taken for what it is not."""
    return CheckpointMismatch(
        f"version {version!r} of {name!r} has brought the state that another version left up to date with its migrate, "
        f"which this program does not have, and {why}",
        hint=f"Give version {version!r} with its migrate= again; as an earlier one of process, previous={{{version!r}: "
        "(function, on_timer, migrate)}, of applyInPandasWithState (function, state_schema, migrate), of "
        f"transformWithState (processor, migrate). Or start the program of that version once {TO_THE_END}",
    )


def _with_what_was_migrated(bound: Topology, program: Topology) -> Topology:
    """It is known of a version for good: a program that is started later may lack it."""

    def kept(node: Node) -> Node:
        before = bound.node(node.number)
        if before.version != node.version:
            return node
        return replace(node, migrates=node.migrates | before.migrates)

    return replace(program, nodes=tuple(map(kept, program.nodes)))


def _kind(version: str) -> str:
    return "" if said_by_user(version) == version else ", with what it was then (docs/upgrading.md)"


def _begun(epoch: Epoch, why: str, *, missing: str | None = None) -> CheckpointMismatch:
    finish = f"start the old program once {TO_THE_END}"
    either = (
        f"give the old function as previous={{{said_by_user(missing)!r}: function}}{_kind(missing)}, or "
        if missing is not None
        else ""
    )
    hint = either + finish
    return CheckpointMismatch(
        f"epoch {epoch} was begun by the program before, and something of it may have been seen: {why}",
        hint=hint[0].upper() + hint[1:],
    )


def is_another(history: History, program: Topology) -> bool:
    """Whether it matters what has been seen of the open epoch: not to a program that has run, and goes on, alone."""
    changes = compare(history.bindings[-1].program, program)
    return len(history.bindings) > 1 or any(change.when is When.EPOCH for change in changes)


class LastCommit(NamedTuple):
    """Where an instance stood at the last commit: its log offset, and the number of its last output row."""

    log_offset: LogOffset = LOG_BEGIN
    emitted: OutputNumber = NO_OUTPUT


@dataclass(frozen=True, slots=True)
class Remains:
    """What there is behind the last commit. `ends` is where every instance stood at it; `own` are pieces of its log
    from its stores, `deltas` what others and the sink hold; `cursors` say by channel what is visible. `whole`, whether
    all holders could be asked."""

    ends: Mapping[Origin, LastCommit]
    own: Iterable[tuple[Origin, Segment]]
    deltas: Iterable[bytes]
    cursors: Mapping[int, int]
    whole: bool

    def pieces(self) -> Iterator[tuple[Origin, Segment]]:
        """All of the logs. Where only the extent of one is known, that stands for bytes that say something."""
        yield from self.own
        for raw in self.deltas:
            for entry in decode_delta(raw):
                data = entry.data if entry.data is not None else b"\0" * (entry.end - entry.start)
                yield entry.origin, (entry.start, data)


def open_epoch(number: Epoch, remains: Remains, *, realtime: bool | None, planned: bool) -> OpenEpoch:
    """What has become of the epoch behind the last commit. `realtime` is the mode of the last start, where that is
    known; in micro-batch nothing of an epoch happens before it is `planned`.

    Of an older copy of a checkpoint it may have happened all the same. What is known of it then decides; what cannot be
    looked into has not been seen, and counts as begun, so that it goes before another program finds it.
    """
    last = OpenEpoch(number, True, epoch_after(number) if realtime is not False else number)
    if not remains.whole and (realtime is not False or planned):
        return last
    for channel, upto in remains.cursors.items():
        if upto > remains.ends.get(channel_origin(channel), LastCommit()).emitted:
            return last
    begun = not remains.whole
    for origin, piece in remains.pieces():
        offset = remains.ends.get(origin, LastCommit()).log_offset
        if is_seen(piece, offset):
            return last
        begun = begun or piece[0] + len(piece[1]) > offset
    return OpenEpoch(number, begun, epoch_before(number))


def is_seen(piece: Segment, committed: LogOffset) -> bool:
    """Whether a piece of an instance's log says more, behind the offset at its last commit, than that an epoch
    began."""
    start, data = piece
    if start + len(data) <= committed:
        return False
    if start < committed:
        start, data = committed, data[committed - start :]
    try:
        steps = codec.decode_steps(data, start)
    except LogCorrupt:
        return True
    return any(step.kind is not Kind.BOUNDARY for step in steps)


def _digest(program: Topology) -> str:
    said = json.dumps(program.to_document(), sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:32]
