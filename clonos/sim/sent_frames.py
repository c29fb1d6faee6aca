"""The log of what an instance has sent, as a part of its simulated state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from clonos.protocol.ids import OutputNumber
from clonos.protocol.ports import Emit
from clonos.protocol.recovery.uncoordinated.sent_log import SentLog
from clonos.sim.frames import OutputFrame


class SentFrames(SentLog[OutputFrame]):
    """See the module."""

    def __init__(self, acked_input: Callable[[], int], kept: Iterable[OutputFrame] = ()) -> None:
        self._acked_input = acked_input
        self.kept = list(kept)

    def keep(self, emit: Emit, frame: OutputFrame) -> None:
        self.kept.append(frame)

    def frames(self, since: OutputNumber) -> Iterator[tuple[OutputNumber, OutputFrame]]:
        for frame in list(self.kept):
            last = frame.output.emitted_output
            if last >= since:
                yield last, replace(frame, output=replace(frame.output, acked_input=self._acked_input()))

    def forget(self, before: OutputNumber) -> None:
        self.kept = [frame for frame in self.kept if frame.output.emitted_output >= before]

    def clear(self) -> None:
        self.kept = []
