"""Forced checkpoints: what an instance does so that no checkpoint is useless.

A checkpoint is useless if it is on no consistent line: a chain of rows leads from behind it to before it, where each
row of the chain was sent in the interval in which the one before it was received, be it earlier in that interval (a
zigzag cycle; Netzer and Xu, "Necessary and Sufficient Conditions for Consistent Global Snapshots", 1995). An instance
that is about to take a row with which it might close such a chain takes a checkpoint first.

The rules are those of Hélary, Mostefaoui, Netzer and Raynal, "Communication-Based Prevention of Useless Checkpoints in
Distributed Computations", 2000, figure 7. Two things are ours. All that comes in one bundle is taken in one step, and
one checkpoint before it is enough: then no row of the bundle asks for another. And each epoch begins anew: nothing is
under way where one ends, and all instances have a checkpoint there, so no chain leads across.

An instance that stores before it sends takes part where it may go back. Of its checkpoints those count which are kept
until the safe line has passed them; what it makes counts as sent then, although it leaves later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from clonos.protocol.destination import NOWHERE
from clonos.protocol.fence import Generation
from clonos.protocol.ports import Bundle, Emit
from clonos.protocol.recovery.communication_induced.dependency_vector import DependencyVector
from clonos.protocol.recovery.communication_induced.instance_numbering import InstanceNumbering
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.policy import ALONE, Decision, InstancePolicy
from clonos.protocol.recovery.recovery_kind import RecoveryKind


class ForcedCheckpoints(InstancePolicy):
    """What communication-induced checkpoints decide for an operator's instance."""

    goes_back = True

    def __init__(
        self,
        instance: int,
        numbering: InstanceNumbering,
        kind: RecoveryKind = RecoveryKind.COMMUNICATION_INDUCED,
    ) -> None:
        """`instance` is its number among those of its operator."""
        self.kind = kind
        self._own = numbering.first + instance
        self._numbering = numbering
        self._others = (1 << numbering.count) - 1 & ~(1 << self._own)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """The instance has a checkpoint there, with which the epoch before ended, or the query begins."""
        self._lamport = 0
        self._checkpoints = [0] * self._numbering.count
        self._taken = self._greater = 0
        self._take()

    def resume(self, kept: bytes, generation: Generation) -> None:
        vector = DependencyVector.from_bytes(kept)
        self._lamport, self._checkpoints = vector.lamport, list(vector.checkpoints)
        self._taken, self._greater = vector.taken, vector.greater
        self._sent_to = self._readers if self.kind.sends_late else 0

    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        if bundle.deltas:
            vectors = [DependencyVector.from_bytes(raw) for raw in bundle.deltas]
            if self._is_forced_by(vectors):
                yield ALONE
            for vector in vectors:
                self._depend_on(vector)
            bundle = replace(bundle, deltas=())
        yield bundle

    def begin_round(self, begun: Round) -> Iterator[Decision]:
        """There are no rounds."""
        yield from ()

    def end_input(self) -> Iterator[Decision]:
        yield from ()

    def take_checkpoint(self, *, counts: bool = True) -> bytes:
        if counts:
            self._take()
        return self._vector.to_bytes()

    def send(self, emit: Emit) -> Emit:
        targets = dict.fromkeys(chain.from_iterable(emit.destinations))
        numbers = {target: self._numbering.by_destination[target] for target in targets if target != NOWHERE}
        receivers = {target: number for target, number in numbers.items() if number is not None}
        if not receivers:
            return emit
        for number in receivers.values():
            self._sent_to |= 1 << number
        return replace(emit, deltas=dict.fromkeys(receivers, self._vector.to_bytes()))

    @property
    def _readers(self) -> int:
        """The instances that it may have sent rows to since its last checkpoint that counts."""
        return sum(1 << number for number in self._numbering.by_destination if number is not None)

    @property
    def _vector(self) -> DependencyVector:
        return DependencyVector(self._lamport, self._checkpoints, self._taken, self._greater)

    def _take(self) -> None:
        self._sent_to = 0  # the instances that it has sent rows to since its last checkpoint
        self._taken = self._greater = self._others
        self._lamport += 1
        self._checkpoints[self._own] += 1

    def _is_forced_by(self, vectors: list[DependencyVector]) -> bool:
        """Whether one of them, were they taken one after another, would close a chain. (The first condition is about
        chains that end at another instance, the second about those that end here.)"""
        lamport, own = self._lamport, self._checkpoints[self._own]
        for vector in vectors:
            if self._sent_to & vector.greater and vector.lamport > lamport:
                return True
            if vector.checkpoints[self._own] == own and vector.taken >> self._own & 1:
                return True
            lamport = max(lamport, vector.lamport)
        return False

    def _depend_on(self, vector: DependencyVector) -> None:
        if vector.lamport > self._lamport:
            self._lamport = vector.lamport
            self._greater = vector.greater & self._others
        elif vector.lamport == self._lamport:
            self._greater &= vector.greater
        for other, number in enumerate(vector.checkpoints):
            if other == self._own or number < self._checkpoints[other]:
                continue
            taken = vector.taken & 1 << other
            if number > self._checkpoints[other]:
                self._checkpoints[other] = number
                self._taken = self._taken & ~(1 << other) | taken
            else:
                self._taken |= taken
