"""The newest consistent line: the one place where it is decided where processes begin after a failure.

Each process has points at which it could begin, its initial state the first of them. A point has received something
from senders and has sent something to receivers, and it may ask two things of where its neighbours begin:

- *nothing is lost*: what it has sent, and what is kept nowhere, its receiver must have. What is kept (a log of
  messages, a source that is read again) can be sent again, and is not asked for.
- *no orphan*: what it has received must have been sent, because the sender might send something else in that place. A
  sender that repeats what it sent, from a causal log or because it is deterministic, is not asked for that.

A recovery is thus known here by what its points ask for, and by nothing else: causal logging asks for the first, logs
of messages with deduplication for the second, checkpoints without any log for both.

Both demands grow easier to meet as neighbours begin later, so there is one newest line, and going back from what is
not met, in any order, ends there: the fixed point of Isard and Abadi, "Falkirk Wheel: Rollback Recovery for Dataflow
Systems", 2015 (constraints C1 and C2), for channels whose times are totally ordered. The rollback
propagation of Wang et al., 1995, is that of the second demand alone (`tests/protocol/line_oracles.py` has it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Process: TypeAlias = int
"""Any number that names a process, as the one of the channel that its rows come on."""

Position: TypeAlias = int
"""On a channel, of the last message. A channel that is not named has had none."""


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """Where a process can begin. A later one has received and sent as much as one before it, or more."""

    received: Mapping[Process, Position] = field(default_factory=dict)  # by sender: what is in its state
    sent: Mapping[Process, Position] = field(default_factory=dict)  # by receiver: what it does not send anew
    unkept: Mapping[Process, Position] = field(default_factory=dict)  # of that, what cannot be sent again
    # Of `received`, what must have been sent
    unrepeatable: Mapping[Process, Position] = field(default_factory=dict)


def newest_consistent_line(points: Mapping[Process, Sequence[RestartPoint]]) -> dict[Process, int]:
    """By process the index of the point at which it begins. `points`: oldest first, at least one each; the first one is
    where a process begins when nothing later is consistent, and is asked for nothing.

    Of each process the newest points are looked at, one after the other, as far as they have to be: `points` may make
    them when they are asked for. A process is looked at again when one that it asks something of has gone back, so it
    is quickest where receivers come before senders if it is about loss, and after them if it is about orphans.
    """
    line = {process: len(candidates) - 1 for process, candidates in points.items()}
    asking: dict[Process, set[Process]] = {}
    left, waiting = deque(points), set(points)
    while left:
        process = left.popleft()
        waiting.discard(process)
        before = line[process]
        while line[process] and not _is_met(process, points, line):
            line[process] -= 1
        if line[process]:
            point = points[process][line[process]]
            for other in (*point.unkept, *point.unrepeatable):
                asking.setdefault(other, set()).add(process)
        if line[process] != before:
            again = asking.get(process, set()) - waiting
            left.extend(sorted(again))
            waiting |= again
    return line


def _is_met(
    process: Process, points: Mapping[Process, Sequence[RestartPoint]], line: Mapping[Process, int]
) -> bool:
    point = points[process][line[process]]
    return all(
        other in points and _reaches(points[other][line[other]].received, process, upto)
        for other, upto in point.unkept.items()
    ) and all(
        other in points and _reaches(points[other][line[other]].sent, process, upto)
        for other, upto in point.unrepeatable.items()
    )


def _reaches(had: Mapping[Process, Position], process: Process, upto: Position) -> bool:
    last = had.get(process)
    return last is not None and last >= upto
