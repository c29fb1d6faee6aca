"""Unaligned checkpoints: what comes before its marker belongs to the checkpoint, and nothing is held.

An instance fixes its state when the first marker of a round comes, and sends its own marker on. It goes on with what
comes on all channels. What comes on a channel before the marker does had been sent before its sender's checkpoint: it
is the *state of the channel*, and is kept until the marker has come on every channel. The state of the instance and of
its channels together are its checkpoint. An instance that begins with it takes these records first (Chandy and Lamport,
"Distributed Snapshots: Determining Global States of Distributed Systems", 1985, section 3).

So where one sender is slow, as with hot keys, the rows of the others do not wait for its marker. How long a round takes
is the same as with alignment: a marker does not overtake the rows before it. A sink holds its rows anyway, until their
round is complete, and aligns.

Channels from sources have no markers and no state, and a round may come to nothing, as with `alignment`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from clonos.protocol.frontier import numbers_of, runs_of
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.coordinated.bundle_parts import Span, between_markers, part_of
from clonos.protocol.recovery.marker import NO_ROUND, Marker, Round
from clonos.protocol.recovery.policy import (
    BeginCheckpoint,
    Checkpoint,
    CompleteCheckpoint,
    Decision,
    InstancePolicy,
    KeepInCheckpoint,
)
from clonos.protocol.recovery.recovery_kind import RecoveryKind


class ChannelStates(InstancePolicy):
    """What unaligned checkpoints decide for an instance. `senders` are the channels from other instances."""

    kind = RecoveryKind.UNALIGNED
    in_rounds = True

    def __init__(self, senders: Collection[int]) -> None:
        self._senders = frozenset(senders)
        self._round = NO_ROUND  # the last whose checkpoint was begun
        self._unmarked: set[int] = set()  # channels whose marker of it has not come
        self._reached: dict[int, int] = {}  # in the states of channels

    def begin_epoch(self) -> None:
        self._unmarked, self._reached = set(), {}

    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        if not bundle.markers:
            yield from self._keep(bundle, (0, len(bundle.rows)))
            yield bundle
            return
        for part in between_markers(bundle):
            if isinstance(part, Marker):
                yield from self._mark(part)
            else:
                yield from self._keep(bundle, part)
                yield part_of(bundle, [part])
        if bundle.watermarks:
            yield Bundle([], [], [], watermarks=bundle.watermarks)

    def begin_round(self, begun: Round) -> Iterator[Decision]:
        if not self._senders and begun > self._round:
            self._round = begun
            yield Checkpoint(begun)

    def end_input(self) -> Iterator[Decision]:
        """A checkpoint that is not complete never is."""
        self._unmarked, self._reached = set(), {}
        yield from ()

    def _mark(self, marker: Marker) -> Iterator[Decision]:
        if marker.round > self._round:
            self._round = marker.round
            self._unmarked, self._reached = set(self._senders), {}
            yield BeginCheckpoint(marker.round)
        if marker.round == self._round and marker.channel in self._unmarked:
            self._unmarked.remove(marker.channel)
            if not self._unmarked:
                yield CompleteCheckpoint(self._reached)

    def _keep(self, bundle: Bundle, span: Span) -> Iterator[Decision]:
        """What of the records is of channels' states."""
        if not self._unmarked:
            return
        kept: list[Span] = []
        at, end = span
        positions = numbers_of(bundle.positions)
        for channel, count in runs_of(bundle.channels[at:end]):
            if channel in self._unmarked:
                kept.append((at, at + count))
                self._reached[channel] = positions[at + count - 1]
            at += count
        if kept:
            yield KeepInCheckpoint(part_of(bundle, kept))
