"""Checkpoints of instances that send to each other in cycles: which are useless, and how far a failure leads back.

A small model, in which the policy of an instance and the solver of lines are those that queries run with. A dataflow on
Spark has no cycles inside an epoch: rows of a loop come back by a log that shows them when no failure leads behind them
(`protocol.recovery.rollback.held_output`). Here they come back at once, so that the domino effect can be seen (Randell,
"System Structure for Software Fault Tolerance", 1975), and what forced checkpoints do about it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from clonos.protocol.fence import NO_GENERATION
from clonos.protocol.ids import LOG_BEGIN, OutputNumber
from clonos.protocol.line.consistent_line import RestartPoint, newest_consistent_line
from clonos.protocol.ports import Bundle, Emit
from clonos.protocol.recovery.as_it_comes import AsItComes
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.communication_induced.instance_numbering import InstanceNumbering
from clonos.protocol.recovery.policy import Checkpoint, InstancePolicy
from clonos.protocol.recovery.recovery_kind import RecoveryKind


@dataclass(frozen=True, slots=True)
class Trace:
    """A random execution. `steps` are deliveries; a checkpoint of its own an instance takes at a step with the chance
    `checkpoints`; each delivery is answered, on average, by one message to a random instance."""

    seed: int
    instances: int = 4
    steps: int = 200
    checkpoints: float = 0.1
    most_together: int = 3  # messages that come in one bundle
    storing_first: int = 0  # instances, the first ones, that send only what a checkpoint has


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one trace with one recovery."""

    taken: int
    """Checkpoints, without those at the beginning."""
    forced: int
    """Of these, those that rows have forced."""
    useless: int
    """Of these, those that no consistent line has."""
    deliveries: int
    lost_deliveries: int
    """If all instances were lost at the end: what those had received that have to go back, behind where they begin."""
    intervals_back: int
    """The most checkpoints that an instance has to go back behind its newest one then."""
    riding_bytes: int


class _Instance:
    def __init__(self, number: int, count: int, policy: InstancePolicy) -> None:
        self.number, self.policy = number, policy
        self.received, self.sent = [0] * count, [0] * count
        self.points = [self.point]
        self.deliveries = [0]  # before each of the points
        self.delivered = 0
        self.unsent: list[tuple[int, bytes | None]] = []  # what waits for a checkpoint, to which instance

    @property
    def point(self) -> RestartPoint:
        received = {other: at for other, at in enumerate(self.received) if at}
        return RestartPoint(received, dict(enumerate(self.sent)), unrepeatable=received)

    def take(self, senders: Sequence[int]) -> None:
        """A message of each."""
        for sender in senders:
            self.received[sender] += 1
        self.delivered += len(senders)

    def take_checkpoint(self) -> None:
        self.policy.take_checkpoint()
        self.points.append(self.point)
        self.deliveries.append(self.delivered)

    def store(self, *, is_lost: bool) -> None:
        """A checkpoint that is gone when the next one is there: so it is none of the points. `is_lost`: another process
        goes on from it."""
        kept = self.policy.take_checkpoint(counts=False)
        if is_lost:
            self.policy.begin_epoch()
            self.policy.resume(kept, NO_GENERATION)

    def take_unsent(self) -> list[tuple[int, bytes | None]]:
        due, self.unsent = self.unsent, []
        return due


def run(trace: Trace, recovery: RecoveryKind) -> Outcome:
    """With uncoordinated or with communication-induced checkpoints, by one and the same sequence of random choices.
    Beside the latter some may store before they send."""
    rng = random.Random(trace.seed)
    count = trace.instances
    storing = random.Random(f"{trace.seed}/storing first")
    kinds = [RecoveryKind.EAGER if number < trace.storing_first else recovery for number in range(count)]
    instances = [_Instance(number, count, _policy(kind, number, count)) for number, kind in enumerate(kinds)]
    channels: dict[tuple[int, int], deque[bytes | None]] = {
        (sender, to): deque() for sender in range(count) for to in range(count) if sender != to
    }
    forced = riding = 0

    def send(sender: _Instance) -> None:
        nonlocal riding
        to = rng.choice([other for other in range(count) if other != sender.number])
        sender.sent[to] += 1
        vector = sender.policy.send(message([to])).deltas.get(to)
        riding += len(vector or b"")
        if sender.number < trace.storing_first:
            sender.unsent.append((to, vector))
        else:
            channels[sender.number, to].append(vector)

    def stored(sender: _Instance) -> None:
        for to, vector in sender.take_unsent():
            channels[sender.number, to].append(vector)

    for instance in instances:
        send(instance)
    for _ in range(trace.steps):
        acting = rng.choice(instances)
        if rng.random() < trace.checkpoints:
            acting.take_checkpoint()
            stored(acting)
        waiting = [
            sender for sender in range(count) if sender != acting.number and channels[sender, acting.number]
        ]
        together = rng.randint(1, trace.most_together)
        answers = rng.randint(0, 2)
        chosen = rng.sample(waiting, min(together, len(waiting)))
        if chosen:
            vectors = [channels[sender, acting.number].popleft() for sender in chosen]
            bundle = Bundle([], [], [], [vector for vector in vectors if vector is not None])
            for decision in acting.policy.arrive(bundle):
                if isinstance(decision, Checkpoint):
                    acting.take_checkpoint()
                    stored(acting)
                    forced += 1
                else:
                    acting.take(chosen)
        for _ in range(answers if waiting else 1):
            send(acting)
        if acting.number < trace.storing_first and storing.random() < 0.5:
            acting.store(is_lost=storing.random() < 0.2)
            stored(acting)
    return _outcome(instances, forced, riding)


def _policy(recovery: RecoveryKind, number: int, count: int) -> InstancePolicy:
    if recovery.forces_checkpoints or recovery.sends_late:
        return ForcedCheckpoints(0, InstanceNumbering(number, count, tuple(range(count))), recovery)
    return AsItComes(recovery, goes_back=True)


def message(targets: list[int]) -> Emit:
    """A row for each of these destinations."""
    last = OutputNumber(len(targets))
    return Emit(OutputNumber(1), len(targets), None, [targets], {}, LOG_BEGIN, b"", last)


def _outcome(instances: Sequence[_Instance], forced: int, riding: int) -> Outcome:
    taken = {each.number: each.points for each in instances}
    line = newest_consistent_line(taken)
    useless = sum(
        not _is_on_a_line(instances, each.number, at)
        for each in instances
        for at in range(1, len(each.points))
    )
    return Outcome(
        taken=sum(len(each.points) - 1 for each in instances),
        forced=forced,
        useless=useless,
        deliveries=sum(each.delivered for each in instances),
        lost_deliveries=sum(each.delivered - each.deliveries[line[each.number]] for each in instances),
        intervals_back=max(len(each.points) - 1 - line[each.number] for each in instances),
        riding_bytes=riding,
    )


def _is_on_a_line(instances: Sequence[_Instance], number: int, at: int) -> bool:
    """As the newest line at or before it has it, where the others may be as they are now."""
    points = {
        each.number: each.points[: at + 1] if each.number == number else [*each.points, each.point]
        for each in instances
    }
    return newest_consistent_line(points)[number] == at
