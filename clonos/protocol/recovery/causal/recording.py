"""What an instance has recorded in an earlier life, or its primary has, and what of it is left to repeat.

The bytes are kept beside the steps that were read from them, since the log that a replay builds must equal them. A
standby is given more of them while it follows; the piece may begin before what is known ends, and a step may be in two
pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from clonos.errors import LogConflict, ReplicaLost, Where
from clonos.protocol.ids import LOG_BEGIN, LogOffset, log_after
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Step


class Recording:
    """The recorded log from an offset on."""

    def __init__(self, start: LogOffset = LOG_BEGIN, log: bytes = b"") -> None:
        self._start, self._log = start, log
        self.steps: deque[Step] = deque(codec.decode_steps(log, start))
        self.records = sum(map(_consumed, self.steps))
        """That the complete ones of these steps consume."""

    @property
    def end(self) -> LogOffset:
        """The log offset up to which it is known."""
        return log_after(self._start, self._log)

    def take(self) -> Step:
        """The next step, which is about to be repeated."""
        step = self.steps.popleft()
        self.records -= _consumed(step)
        return step

    def between(self, start: LogOffset, stop: LogOffset) -> bytes:
        """What is known of the log between two offsets that are not before its start."""
        return self._log[start - self._start : stop - self._start]

    def since(self, offset: LogOffset) -> bytes:
        return self._log[offset - self._start :]

    def extend(self, start: LogOffset, log: bytes, repeated: LogOffset, where: Callable[[], Where]) -> bytes:
        """More of it; what of that was not known. What lies before `repeated` is not needed any more.

        Raises ReplicaLost where something in between is missing, LogConflict where it differs from what is known.
        """
        known = self.end
        if start > known:
            raise ReplicaLost(
                f"its log is known up to {known}, what follows begins at {start}", where=where()
            )
        at, stop = max(start, repeated), min(log_after(start, log), known)
        if at < stop and self.between(at, stop) != log[at - start : stop - start]:
            raise LogConflict(f"two histories from log offset {at} on", where=where())
        fresh = log[known - start :]
        if fresh:
            self._start, self._log = repeated, self.since(repeated) + fresh
            unfinished = self.steps.pop().start if self.steps and not self.steps[-1].complete else known
            more = codec.decode_steps(self.since(unfinished), unfinished)
            self.steps += more
            self.records += sum(map(_consumed, more))
        return fresh


def _consumed(step: Step) -> int:
    return sum(count for _, count in step.consumed) if step.complete else 0
