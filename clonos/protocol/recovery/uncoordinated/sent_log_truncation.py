"""Up to where an instance has cut the log of what it has sent, and so which checkpoints go with its own.

The log is cut at the checkpoints of the instance, so that each says by destination which row was the last that is gone.
A reader that begins before it would lack rows that nothing can send again. While all checkpoints are there, no line
asks for them: the safe line lies behind (`uncoordinated.safe_line`). Where some are lost, or a sink is put back from a
backup, it does, and the line finds out (`line.consistent_line`: `unkept`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from clonos.protocol.ids import OutputNumber, output_after

_MOST_PLACES: Final = 64


class _Place(NamedTuple):
    """Where the log may be cut: behind the last row that a checkpoint has, by destination and of all."""

    emitted: OutputNumber
    sent: Mapping[int, OutputNumber]


class SentLogTruncation:
    """Of one instance, in one process."""

    def __init__(self) -> None:
        self._places: list[_Place] = []  # oldest first
        self.unkept: Mapping[int, OutputNumber] = {}
        """By destination, the last row that is not in the log."""

    def begin(self, unkept: Mapping[int, OutputNumber]) -> None:
        """An epoch begins, or is gone on with: by destination, the last row that the log lacks."""
        self._places = []
        self.unkept = unkept

    def take_checkpoint(self, emitted: OutputNumber, sent: Mapping[int, OutputNumber]) -> None:
        """It has all rows up to `emitted`, by destination up to these. Where there are too many places, every second is
        given up, and the log is cut a little later."""
        self._places.append(_Place(emitted, sent))
        if len(self._places) > _MOST_PLACES:
            self._places = self._places[::2]

    def pass_safe_line(self, unread: OutputNumber) -> OutputNumber | None:
        """No line asks for rows before `unread` any more. The log is to be cut before the row that is returned."""
        passed = [place for place in self._places if place.emitted < unread]
        if not passed:
            return None
        self._places = self._places[len(passed) :]
        self.unkept = passed[-1].sent
        return output_after(passed[-1].emitted, 1)
