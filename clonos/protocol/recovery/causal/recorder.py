"""Recording the steps of an instance, live.

A recorder opens a step, hands out what the user function asks for and appends each outcome to the step's entries
before it is used. What it writes is exactly what `replayer` reads back; both append through the same code, so a
replayed step rebuilds the same bytes (invariant I2).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from clonos.errors import QueryDefinitionError
from clonos.protocol.destination import Destinations
from clonos.protocol.ports import Encoded
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Outcome, Run

Perform = Callable[[], Outcome]
Start = Callable[[CallNumber], None]
Wait = Callable[[], Answer]


class Sent:
    """What a step sends, as its digests tell: the content of its rows, and where they go."""

    def __init__(self, encoded: Encoded, destinations: Destinations) -> None:
        self._encoded = encoded
        self._destinations = destinations

    @property
    def digest(self) -> int:
        return self._with_destinations(self._encoded.digest)

    def has_digest(self, recorded: int) -> bool:
        """Whether this is what is recorded, by this version or by an older one."""
        return recorded == self.digest or recorded == self._with_destinations(self._encoded.older_digest)

    def _with_destinations(self, digest: int) -> int:
        for column in self._destinations:
            try:
                flat = bytes(column)
            except ValueError:  # a number above 255, or NOWHERE
                flat = np.array(column, "<i4").tobytes()
            digest = zlib.crc32(flat, digest)
        return digest


class StepPorts(Protocol):
    """What a step needs from the outside."""

    def clock(self) -> int:
        """Microseconds since the epoch."""

    def stabilise(self, chunk: bytes) -> None:
        """Make `chunk`, and everything before it, survive whatever recovery permits. Blocks until it does."""

    def rebuilt(self, chunk: bytes) -> None:
        """A replay has come past `chunk`, which is followed by more of the same step."""


class StepRecorder:
    """One step, executed for the first time."""

    def __init__(self, ports: StepPorts) -> None:
        self._ports = ports
        self._entries = bytearray()
        self._clock: int | None = None
        self._instants: list[int] = []
        self._begun = 0
        self._under_way: dict[CallNumber, tuple[str, Start]] = {}
        self._failed: Exception | None = None

    def open_order(self, runs: Sequence[Run]) -> None:
        codec.append_order(self._entries, runs)

    def open_timer(self, fired_at: int, watermark: int | None) -> None:
        codec.append_timer(self._entries, fired_at, watermark)

    def clock(self) -> int:
        """The step's clock: read once, at the first call. Costs one entry per step."""
        if self._clock is None:
            self._clock = self._read_clock()
            codec.append_clock(self._entries, self._clock)
        return self._clock

    def instant(self) -> int:
        """The clock now. Costs one column value per call."""
        reading = self._read_instant()
        self._instants.append(reading)
        return reading

    def call(self, name: str, perform: Perform) -> Outcome:
        """The outcome of `perform`, which runs only if nothing is recorded. Costs one entry."""
        outcome = self._outcome_of_call(name, perform)
        codec.append_call(self._entries, outcome)
        return outcome

    def begin_call(self, name: str, start: Start) -> CallNumber:
        """A call that is under way while the function goes on. `start` has it carried out if nothing is recorded."""
        number = CallNumber(self._begun)
        self._begun += 1
        self._under_way[number] = name, start
        self._begin(number)
        return number

    def next_answer(self, wait: Wait) -> Answer:
        """What the function is given next of the calls that are under way: what `wait` gives, the first one to end, if
        nothing is recorded. Costs one entry."""
        answer = self._next_answer(wait)
        del self._under_way[answer.number]
        codec.append_answer(self._entries, answer)
        return answer

    def effect(self, key: str, perform: Perform) -> Outcome:
        """Like call, for an outside action: what it depends on is stable before it is performed.

        It is performed again, under the same key, only where its outcome was lost. A step in which it could not be made
        stable has no end, whatever the function makes of that.
        """
        if self._failed is not None:
            raise self._failed
        self._announce(key)
        codec.append_effect(self._entries, key)
        try:
            self._cut()
        except Exception as error:
            self._failed = error
            raise
        outcome = self._outcome_of_effect(key, perform)
        codec.append_effect_done(self._entries, outcome)
        return outcome

    def skip(self, ran: int) -> None:
        """The record after the first `ran` is passed over, and the step ends with it."""
        self._flush_instants()
        codec.append_skip(self._entries, ran)

    def alone(self, channel: int) -> bytes:
        """What is recorded of a step that only the record next in turn, of this channel, would make: a log chunk."""
        entries = bytearray()
        codec.append_order(entries, [(channel, 1)])
        if self._clock is not None:
            codec.append_clock(entries, self._clock)
        self._append_unused(entries)
        return codec.seal(entries)

    def close(self, outputs: int, sent: Sent) -> bytes:
        """End the step; its last chunk. (Earlier ones were given to `stabilise`.)"""
        if self._failed is not None:
            raise self._failed
        self._flush_instants()
        self._append_end(outputs, sent)
        return self._seal()

    # What a replayer answers from the log instead.

    def _read_clock(self) -> int:
        return self._ports.clock()

    def _read_instant(self) -> int:
        return self._ports.clock()

    def _outcome_of_call(self, name: str, perform: Perform) -> Outcome:
        return perform()

    def _begin(self, number: CallNumber) -> None:
        _, start = self._under_way[number]
        start(number)

    def _next_answer(self, wait: Wait) -> Answer:
        return wait()

    def _announce(self, key: str) -> None:
        """Nothing to compare with."""

    def _outcome_of_effect(self, key: str, perform: Perform) -> Outcome:
        return perform()

    def _stabilise(self, chunk: bytes) -> None:
        self._ports.stabilise(chunk)

    def _append_end(self, outputs: int, sent: Sent) -> None:
        codec.append_sent(self._entries, outputs, sent.digest)

    def _append_unused(self, entries: bytearray) -> None:
        """Nothing is recorded that has not been asked for."""

    def _cut(self) -> None:
        self._flush_instants()
        self._stabilise(self._seal())

    def _flush_instants(self) -> None:
        if self._instants:
            codec.append_instants(self._entries, self._instants)
            self._instants = []

    def _seal(self) -> bytes:
        chunk = codec.seal(self._entries)
        self._entries = bytearray()
        return chunk


class UnrecordedStep(StepRecorder):
    """A step that leaves no trace: what recording costs is the difference to this one."""

    def open_order(self, runs: Sequence[Run]) -> None:
        """Nothing is kept."""

    def open_timer(self, fired_at: int, watermark: int | None) -> None:
        """Nothing is kept."""

    def clock(self) -> int:
        if self._clock is None:
            self._clock = self._read_clock()
        return self._clock

    def instant(self) -> int:
        return self._read_instant()

    def call(self, name: str, perform: Perform) -> Outcome:
        return perform()

    def next_answer(self, wait: Wait) -> Answer:
        return wait()

    def effect(self, key: str, perform: Perform) -> Outcome:
        raise QueryDefinitionError(
            f"ctx.effect({key!r}) acts on the outside at once, and what it depends on is not recorded: after a failure "
            "it may be contradicted",
            hint="Write to a sink, or have it recorded: by spark.clonos.recovery=causal, without recovery= of the "
            "operator, and without spark.clonos.recording=false",
        )

    def skip(self, ran: int) -> None:
        """Nothing is kept."""

    def close(self, outputs: int, sent: Sent) -> bytes:
        return b""
