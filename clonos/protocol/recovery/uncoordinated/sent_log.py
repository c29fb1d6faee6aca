"""The log of what an instance has sent: with it what was under way at the recovery line is sent again.

It is part of the instance's state, so a checkpoint has everything that was sent before it, and nothing else: what is
sent behind a checkpoint that the line begins with is made anew, perhaps differently. Readers drop what they have had,
by channel and number, so too much may be sent again, but nothing too little.

Rows that no line can ask for any more are forgotten (`uncoordinated.safe_line`), and all of them when an epoch ends:
readers take everything before their own epoch ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from clonos.protocol.ids import OutputNumber
from clonos.protocol.ports import Emit

FrameT = TypeVar("FrameT")


class SentLog(ABC, Generic[FrameT]):
    """Of one instance, in order of what was sent."""

    @abstractmethod
    def keep(self, emit: Emit, frame: FrameT) -> None:
        """Rows that are about to be sent. Of event time readers are told again in every attempt
        (`engine.output_watermarks`)."""

    @abstractmethod
    def frames(self, since: OutputNumber) -> Iterator[tuple[OutputNumber, FrameT]]:
        """Those with a row of this number or a later one, each with the number of its last row."""

    @abstractmethod
    def forget(self, before: OutputNumber) -> None:
        """Those with no row of this number or a later one are not asked for any more. It may be done late."""

    @abstractmethod
    def clear(self) -> None:
        """Nothing of it is asked for any more."""
