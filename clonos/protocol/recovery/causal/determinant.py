"""Determinants: the recorded outcomes of nondeterministic events.

An instance works in *steps*: a bundle of records, the firing of timers, or the beginning of an epoch. A step opens
with the event itself (ORDER, TIMER or BOUNDARY), goes on with what the user function's services returned (CLOCK,
INSTANT, CALL, ANSWER, EFFECT), and closes with SENT, which holds what the step produced so that a replay can be checked
against it. PROGRAM behind BOUNDARY says which version of the function runs the epoch. SKIP before SENT says that a
record was passed over instead of run, which no replay could find out. WATERMARK behind TIMER is how far event time has
come, as senders and idle channels had it at that moment. ANSWER is of a call that was under way while the function went
on (`clonos.protocol.engine.task_scheduler`): it stands where the function was given it, so the order of the answers is
the order in which the calls ended. TOOK behind CALL, ANSWER or EFFECT_DONE is how long that took, where it was
measured. The causal log of an instance is its steps in order. Within a step the outcomes of one kind are kept in order;
between kinds no order is needed, because a function that asks in another order asks for another outcome and is caught
by the counts, the names or the digest.

The vocabulary follows Silvestre et al., "Clonos: Consistent Causal Recovery for Highly-Available Streaming
Dataflows", SIGMOD 2021, section 4; bundles instead of buffers and run-lengths instead of one order determinant per
buffer are this system's.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NewType

from clonos.protocol.ids import LOG_BEGIN, NO_EPOCH, Epoch, LogOffset


class Kind(enum.IntEnum):
    """Entry types of the log format; the numbers are public."""

    BOUNDARY = 1  # an epoch begins here
    SEED = 2  # 64 bits from which the epoch's random stream is drawn
    ORDER = 3  # runs of (channel, count): which records the step consumes, in which order
    CLOCK = 4  # the step's clock reading
    INSTANT = 5  # exact clock readings, a column
    CALL = 6  # name, success, encoded result or exception
    TIMER = 7  # timers due at this reading fire
    EFFECT = 8  # an outside action is about to happen, under this key
    EFFECT_DONE = 9  # it has: success, encoded result or exception
    END = 10  # as SENT, by older versions: number of output rows, digest of their text
    SKIP = 11  # the step ends early: so many of its records were run, the next one was passed over
    SENT = 12  # number of output rows, digest of what is sent: the rows and where they go
    PROGRAM = 13  # of a BOUNDARY: the version of the function that runs the epoch, unless it is the first one
    WATERMARK = 14  # of a TIMER: the watermark that it moves to; of a BOUNDARY: 0, for such entries follow
    ANSWER = 15  # number of the call in the step, name, success, encoded result or exception
    CHECKPOINT = (
        16  # of an instance that repeats nothing: its next checkpoint, which what it sends from here on needs
    )
    TOOK = 17  # of a CALL, an ANSWER or an EFFECT_DONE: microseconds that it took


CallNumber = NewType("CallNumber", int)
"""Of a call that is under way while the function goes on: how many such calls its step had begun before."""
Run = tuple[int, int]
"""(channel, count): `count` consecutive records of one channel."""


@dataclass(slots=True)
class Outcome:
    """What a call or an effect returned; `payload` is opaque to the core. `took` is in microseconds, None where it was
    not measured."""

    name: str
    ok: bool
    payload: bytes
    took: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call that was under way has come to."""

    number: CallNumber
    outcome: Outcome


@dataclass(slots=True)
class Effect:
    """An outside action. `outcome` is None while it is not recorded whether it took place."""

    key: str
    outcome: Outcome | None = None


@dataclass(slots=True)
class Step:
    """One step as read back from the log."""

    kind: Kind
    start: LogOffset  # log offset of the first chunk of the step
    epoch: Epoch = NO_EPOCH  # BOUNDARY
    seed: int = 0  # BOUNDARY
    program: str = ""  # BOUNDARY: version of the function; of none, the first that the checkpoint had
    runs: list[Run] = field(default_factory=list)  # ORDER
    fired_at: int = 0  # TIMER, microseconds
    watermark: int | None = None  # TIMER, microseconds; None where it stays
    records_watermarks: bool = False  # BOUNDARY: older versions took them from the records
    clocks: deque[int] = field(default_factory=deque)  # microseconds
    instants: deque[int] = field(default_factory=deque)  # microseconds
    calls: deque[Outcome] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    effects: deque[Effect] = field(default_factory=deque)
    skip: int | None = None  # how many of its records were run before the one that was passed over
    complete: bool = False
    outputs: int = 0
    digest: int = 0
    end: Kind = Kind.SENT  # the entry that closes it
    stop: LogOffset = LOG_BEGIN  # log offset after the last chunk of the step

    @property
    def consumed(self) -> list[Run]:
        """The runs of the records that the step consumes: all that it opens with, or those up to the skipped one."""
        return self.runs if self.skip is None else first_of(self.runs, self.skip + 1)


def first_of(runs: Sequence[Run], count: int) -> list[Run]:
    """The first `count` records of `runs`."""
    kept: list[Run] = []
    for channel, length in runs:
        if count <= 0:
            break
        kept.append((channel, min(length, count)))
        count -= length
    return kept
