"""Alignment: no record from behind a marker is processed before the checkpoint of its round.

An instance takes its checkpoint of a round when the marker has come on every channel from another instance. A channel
on which it has come already is held until then, and what came on it follows the checkpoint. So what is in the
checkpoint of a receiver is what was sent before the checkpoint of its sender, on every channel: the checkpoints of a
round are a consistent line (algorithm 1 of "Lightweight Asynchronous Snapshots for Distributed Dataflows").

Channels from sources have no markers, and are never held. A source is read again after a failure, from where each of
its readers stands, so it need not be cut at the same place for all of them. Where an instance reads sources alone, it
begins the round for those behind it when the driver says so.

A round can come to nothing: where an epoch ends, senders that have not heard of the round send no marker any more. What
is held then is taken before the epoch's end, and the marker of a later round makes an instance forget the earlier one.

Where an instance stores before it sends, its lost process is replaced alone. The one in its place is sent again what
came from the first marker of an open round on, and knows from the checkpoint which round was the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from clonos.protocol.fence import Generation
from clonos.protocol.frontier import runs_of
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.coordinated.bundle_parts import Span, between_markers, part_of
from clonos.protocol.recovery.coordinated.last_marker import LastMarker
from clonos.protocol.recovery.marker import NO_ROUND, Marker, Round
from clonos.protocol.recovery.policy import Checkpoint, Decision, InstancePolicy
from clonos.protocol.recovery.recovery_kind import RecoveryKind


class Alignment(InstancePolicy):
    """What coordinated checkpoints decide for an instance. Sinks align also where operators do not, and so does an
    instance that stores before it sends. `senders` are the channels on which markers come."""

    in_rounds = True

    def __init__(self, senders: Collection[int], kind: RecoveryKind = RecoveryKind.COORDINATED) -> None:
        self.kind = kind
        self.goes_back = kind.sends_late
        self._last_marker: LastMarker | None = None
        self._senders = frozenset(senders)
        self._last = NO_ROUND  # that was checkpointed, or forgotten
        self._round = NO_ROUND  # whose markers are coming
        self._marked: set[int] = set()
        self._held: list[Bundle] = []

    @property
    def held(self) -> int:
        """Records that wait."""
        return sum(len(bundle.rows) for bundle in self._held)

    @property
    def is_aligning(self) -> bool:
        return bool(self._marked)

    def begin_epoch(self) -> None:
        self._last_marker = None
        self._forget()

    def resume(self, kept: bytes, generation: Generation) -> None:
        last = LastMarker.from_bytes(kept)
        if last.generation == generation:
            self._last_marker, self._last = last, last.round

    def send_marker(self, marker: LastMarker) -> None:
        self._last_marker = marker

    @property
    def last_marker(self) -> LastMarker | None:
        return self._last_marker

    def take_checkpoint(self, *, counts: bool = True) -> bytes:
        return self._last_marker.to_bytes() if self._last_marker is not None else b""

    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        if not bundle.markers and not self._marked:
            yield bundle
            return
        for part in between_markers(bundle):
            yield from self._mark(part) if isinstance(part, Marker) else self._records(bundle, part)
        yield from self._watermarks(bundle)

    def begin_round(self, begun: Round) -> Iterator[Decision]:
        if not self._senders and begun > self._last:
            self._last = begun
            yield Checkpoint(begun)

    def end_input(self) -> Iterator[Decision]:
        yield from self._forget()

    def _mark(self, marker: Marker) -> Iterator[Decision]:
        if marker.round <= self._last or marker.round < self._round:
            return
        if marker.round > self._round:
            yield from self._forget()
            self._round = marker.round
        self._marked.add(marker.channel)
        if self._marked >= self._senders:
            self._last = self._round
            yield Checkpoint(self._last)
            yield from self._forget()

    def _forget(self) -> list[Bundle]:
        """The round that is under way; what was held."""
        held, self._held = self._held, []
        self._marked.clear()
        self._round = NO_ROUND
        return held

    def _records(self, bundle: Bundle, span: Span) -> Iterator[Bundle]:
        """Those that may be taken now; the others are held."""
        if not self._marked:
            yield part_of(bundle, [span])
            return
        taken: list[Span] = []
        held: list[Span] = []
        at, end = span
        for channel, count in runs_of(bundle.channels[at:end]):
            (held if channel in self._marked else taken).append((at, at + count))
            at += count
        if held:
            self._held.append(part_of(bundle, held))
        if taken:
            yield part_of(bundle, taken)

    def _watermarks(self, bundle: Bundle) -> Iterator[Bundle]:
        """They are behind the records of their channel."""
        held = {channel: at for channel, at in bundle.watermarks.items() if channel in self._marked}
        taken = {channel: at for channel, at in bundle.watermarks.items() if channel not in self._marked}
        if held:
            self._held.append(Bundle([], [], [], watermarks=held))
        if taken:
            yield Bundle([], [], [], watermarks=taken)
