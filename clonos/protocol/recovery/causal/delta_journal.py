"""The journal: which pieces of which logs each destination has not been sent yet.

An instance shares its own log and, to the sharing depth, the logs it received. New pieces, own or received, are
appended to one journal in the order they became known; a destination's delta is everything behind its mark. Since a
channel is FIFO and pieces are idempotent, a mark per destination is all there is to keep, and stamping costs the new
pieces, not the number of origins.

Sharing depth k: a piece is handed on while its distance from the origin is at most k; beyond, only its extent is
(see `delta`). `FULL` never elides. Depth 0 shares extents alone: an instance that loses its log store has lost the log,
but it does not guess.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import Coverage
from clonos.protocol.recovery.causal.delta import DeltaEntry, decode_delta, encode_delta, encode_entry
from clonos.protocol.recovery.causal.history_mark import HistoryMark

FULL = 1 << 30
FIRST_HOP = 1
"""From an origin to those that read it."""
FOLD_FROM = 4096


class Receipts:
    """What has been received of every origin's log, so that what comes twice, late or split is taken once.

    Where ways of different lengths lead from an origin to a receiver, a piece may come by the longer one first, elided
    or to be elided sooner by those that it is handed on to. So what comes by a shorter way is new, unless nothing is
    ever elided (`by_hops` is false).
    """

    def __init__(self, *, by_hops: bool = True) -> None:
        self._by_hops = by_hops
        self._seen: dict[Origin, dict[int, Coverage]] = {}  # by hops: what came over so many, or fewer

    def take(self, raw: bytes) -> list[tuple[DeltaEntry, LogOffset, LogOffset]]:
        """The parts [start, end) of a delta's entries that are new. Raises LogCorrupt."""
        fresh: list[tuple[DeltaEntry, LogOffset, LogOffset]] = []
        for entry in decode_delta(raw):
            seen = self._seen.setdefault(entry.origin, {})
            hops = entry.hop if self._by_hops else FIRST_HOP
            if hops not in seen:
                shorter = [known for known in seen if known < hops]
                seen[hops] = seen[max(shorter)].copy() if shorter else Coverage()
            fresh += [(entry, start, end) for start, end in seen[hops].add(entry.start, entry.end)]
            for longer, coverage in seen.items():
                if longer > hops:
                    coverage.add(entry.start, entry.end)
        return fresh

    @property
    def ends(self) -> dict[Origin, LogOffset]:
        return {origin: max(each.end for each in seen.values()) for origin, seen in self._seen.items()}

    def covers(self, origin: Origin, start: LogOffset, end: LogOffset) -> bool:
        """Whether all of it has come, over however many hops."""
        seen = self._seen.get(origin)
        return start >= end or (seen is not None and seen[max(seen)].covers(start, end))


class DeltaJournal:
    """Pieces in order, marks per destination.

    Under a steady trickle of small bundles most pieces are old and known to every destination. Beyond `fold_from`
    pieces the older half is folded, one piece per origin; a destination whose mark lay inside is sent more than it
    lacks, which does no harm.
    """

    def __init__(self, depth: int = FULL, *, fold_from: int = FOLD_FROM) -> None:
        self._depth = depth
        self._fold_from = fold_from
        self._pieces: deque[DeltaEntry] = deque()
        self._dropped = 0  # number of the first piece; marks are numbers of pieces
        self._marks: dict[int, int] = {}
        self._receipts = Receipts(by_hops=depth < FULL)
        self._bytes = 0

    @property
    def size(self) -> int:
        """Log bytes held."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def received(self) -> dict[Origin, LogOffset]:
        """How far it has been sent others' logs."""
        return self._receipts.ends

    @property
    def elides(self) -> bool:
        """Whether pieces are to be marked, because some destination is not sent their bytes."""
        return self._depth < FULL

    def append_own(
        self, origin: Origin, start: LogOffset, data: bytes, mark: HistoryMark | None = None
    ) -> None:
        """A new piece of the instance's own log."""
        self._push(DeltaEntry(origin, start, len(data), 1, data if self._depth > 0 else None, mark))

    def own_since(self, origin: Origin, start: LogOffset) -> bytes:
        """The instance's own log from offset `start` on, as far as it is held."""
        return b"".join(
            piece.data[max(start - piece.start, 0) :]
            for piece in self._pieces
            if piece.data is not None and piece.origin == origin and piece.end > start
        )

    def receive(self, raw: bytes) -> bool:
        """Take in a delta; whether it brought anything new. Raises LogCorrupt."""
        fresh = self._receipts.take(raw)
        for entry, start, end in fresh:
            hop = entry.hop + 1
            self._push(entry.part(start, end, hop, elided=hop > self._depth))
        return bool(fresh)

    def _push(self, piece: DeltaEntry) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece.data or b"")
        if len(self._pieces) > self._fold_from:
            self._fold()

    def delta_for(self, destination: int) -> bytes | None:
        """What a destination lacks, and mark it as sent. None where it lacks nothing."""
        end = self._dropped + len(self._pieces)
        mark = max(self._marks.get(destination, 0), self._dropped)
        self._marks[destination] = end
        if mark == end:
            return None
        return encode_delta(encode_entry(*self._pieces[at]) for at in range(mark - end, 0))

    def truncate(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """Drop from the left what ends at or before its origin's truncation point."""
        while self._pieces:
            piece = self._pieces[0]
            if piece.end > truncation_points.get(piece.origin, 0):
                break
            self._pieces.popleft()
            self._bytes -= len(piece.data or b"")
            self._dropped += 1

    def _fold(self) -> None:
        older = [self._pieces.popleft() for _ in range(len(self._pieces) // 2)]
        folded = _folded(older)
        self._pieces.extendleft(reversed(folded))
        first = self._dropped + len(older)
        self._dropped = first - len(folded)
        for destination, mark in self._marks.items():
            if mark < first:
                self._marks[destination] = self._dropped


def fold_deltas(raws: Iterable[bytes]) -> bytes:
    """One delta that says what all of these say. Raises LogCorrupt.

    A range of which one says only that it exists, and another what it holds, stays in both forms: a holder that is
    asked must be able to give all it was given. It is never longer than they are together: where pieces that came over
    different numbers of hops overlap, taking out what is there twice can cost more entries than it saves bytes.
    """
    seen: dict[tuple[Origin, bool], Coverage] = {}
    pieces: list[DeltaEntry] = []
    given: list[DeltaEntry] = []
    for raw in raws:
        for entry in decode_delta(raw):
            given.append(entry)
            coverage = seen.setdefault((entry.origin, entry.data is None), Coverage())
            for start, end in coverage.add(entry.start, entry.end):
                pieces.append(entry.part(start, end, entry.hop, elided=False))
    folded, together = (encode_delta(encode_entry(*one) for one in some) for some in (_folded(pieces), given))
    return min(folded, together, key=len)


def _folded(pieces: Iterable[DeltaEntry]) -> list[DeltaEntry]:
    runs: dict[tuple[Origin, int, bool], list[DeltaEntry]] = {}
    for piece in pieces:
        runs.setdefault((piece.origin, piece.hop, piece.data is None), []).append(piece)
    return [joined for run in runs.values() for joined in _joined(run)]


def _joined(run: list[DeltaEntry]) -> Iterator[DeltaEntry]:
    """Pieces of one origin with what is contiguous made one."""
    run.sort(key=lambda piece: piece.start)
    at = 0
    while at < len(run):
        stop = at + 1
        while stop < len(run) and _continues(run[stop], run[stop - 1]):
            stop += 1
        first, last = run[at], run[stop - 1]
        data = None if first.data is None else b"".join(piece.data or b"" for piece in run[at:stop])
        yield DeltaEntry(first.origin, first.start, last.end - first.start, first.hop, data, last.mark)
        at = stop


def _continues(piece: DeltaEntry, before: DeltaEntry) -> bool:
    """Whether two pieces can be one: the mark of the later one must say all that both say."""
    begins, began = (None if one.mark is None else one.mark.begins for one in (piece, before))
    return piece.start == before.end and begins == began
