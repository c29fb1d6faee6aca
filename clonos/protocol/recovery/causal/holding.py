"""What a holder says of an instance's log: a function of what it could read, and of what it could not.

*No answer is not an empty answer.* A place that cannot be read at the moment (too many files are open, the disk fails,
a directory is just being replaced) makes no reply at all: reading it raises what has happened, and the recovering
instance asks again (`clonos.protocol.recovery.causal.asking`). What is there and is damaged for good is said in the
reply, `Damage`, beside what can still be read, because a part of a log is better than none. Whether that is enough is
not the holder's matter (`clonos.protocol.recovery.causal.longest_prefix.check_complete`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from clonos.errors import LogCorrupt
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import Segment, pieces_before
from clonos.protocol.recovery.causal.delta import decode_delta
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of a holder that cannot be read any more.

    `owner` is the instance whose store it is; without one it is a sink's log, or not known. `acts`: its owner has acted
    on the outside (`ctx.effect`), and what that depended on may have stood there.
    """

    what: str
    owner: Origin | None = None
    acts: bool = True

    def may_say(self, origin: Origin) -> bool:
        """Whether something that is out in the world, and depends on the log of `origin`, may be forgotten with it.

        What is visible is in the sinks' logs as well, so a store matters only for the effects of its owner.
        """
        return self.may_depend_on(origin) and (self.owner is None or self.acts)

    def may_depend_on(self, origin: Origin) -> bool:
        """Whether it may have held a part of the log of `origin`. An instance depends on itself and on instances before
        it, which have lower numbers."""
        return self.owner is None or self.owner == origin or self.owner.node > origin.node


@dataclass(frozen=True, slots=True)
class HolderReply:
    """What one holder has of an instance's log: what was handed on to it, and what incarnations on its host wrote."""

    holder: str
    segments: list[Segment] = field(default_factory=list)
    required: LogOffset = LOG_BEGIN
    damaged: tuple[Damage, ...] = ()
    own: tuple[OwnLog, ...] = ()
    marks: tuple[HistoryMark, ...] = ()
    """Which history it depends on, as far as it was not sent the log itself."""

    def of_history(self, mark: HistoryMark | None) -> HolderReply:
        """Without what it says from the epoch of a snapshot on, if that is another history than the snapshot's."""
        if mark is None:
            return self
        own = tuple(one.of_history(mark) for one in self.own)
        if not mark.contradicts(self.segments):
            return replace(self, own=own)
        return replace(
            self,
            own=own,
            segments=pieces_before(self.segments, mark.begins),
            required=min(self.required, mark.begins),
        )


@dataclass(slots=True)
class HeldLog:
    """What a holder has of one origin: pieces of its log, and how far instances or sinks depend on it."""

    pieces: list[Segment] = field(default_factory=list)
    required: LogOffset = LOG_BEGIN
    # By the offset where an epoch began, the last
    marks: dict[int, HistoryMark] = field(default_factory=dict)

    def take_mark(self, mark: HistoryMark) -> None:
        known = self.marks.get(mark.begins)
        if known is None or known.ends < mark.ends:
            self.marks[mark.begins] = mark


@dataclass(slots=True)
class Index:
    """One store, or the sinks' logs, by the instance that they speak of."""

    owner: Origin | None = None
    known: dict[Origin, HeldLog] = field(default_factory=dict)
    own: OwnLog | None = None  # the owner's, where it may have standbys elsewhere, or is damaged
    damaged: list[Damage] = field(default_factory=list)
    size: int = 0  # bytes of logs

    def damage(self, what: str, *, acts: bool = True) -> None:
        self.damaged.append(Damage(what, self.owner, acts))

    def take_deltas(self, deltas: Iterable[bytes], *, acts: bool = True) -> None:
        """What was received by the owner, or made visible."""
        for raw in deltas:
            try:
                entries = decode_delta(raw)
            except LogCorrupt as error:
                self.damage(f"a delta kept by {self.owner or 'a sink'}: {error.message}", acts=acts)
                continue
            for entry in entries:
                known = self.known.setdefault(entry.origin, HeldLog())
                known.required = max(known.required, entry.end)
                if entry.data is not None:
                    known.pieces.append((entry.start, entry.data))
                    self.size += len(entry.data)
                elif entry.mark is not None:
                    known.take_mark(entry.mark)

    def take_own(
        self, pieces: list[Segment], incarnations: tuple[Writer, ...] | None, received: Iterable[bytes]
    ) -> None:
        """What the owner wrote. What lies behind a hole in a damaged store need not be known to any other holder, so
        there it is told apart, too."""
        self.size += sum(len(data) for _, data in pieces)
        if incarnations is None and not self.damaged and self.owner is not None:
            self.known.setdefault(self.owner, HeldLog()).pieces += pieces
            return
        kept = tuple(received) if incarnations is not None else ()
        self.own = OwnLog(pieces, incarnations or (), kept, bool(self.damaged))
        self.size += sum(map(len, kept))


def told(
    holder: str, origin: Origin, from_offset: LogOffset, readings: Iterable[Callable[[], Index]]
) -> HolderReply:
    """The reply of a holder that reads one place after another. What cannot be read now is raised by its reading, and
    then there is no reply."""
    pieces: list[Segment] = []
    required = LOG_BEGIN
    damaged: list[Damage] = []
    own: list[OwnLog] = []
    marks: list[HistoryMark] = []
    for read in readings:
        index = read()
        damaged += index.damaged
        if index.own is not None and index.owner == origin:
            own.append(index.own)
        known = index.known.get(origin)
        if known is not None:
            required = max(required, known.required)
            marks += known.marks.values()
            pieces += [(start, data) for start, data in known.pieces if start + len(data) > from_offset]
    marks = [mark for mark in marks if mark.ends > from_offset]
    return HolderReply(holder, pieces, required, tuple(dict.fromkeys(damaged)), tuple(own), tuple(marks))
