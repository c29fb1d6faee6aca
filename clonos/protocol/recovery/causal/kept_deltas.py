"""Others' logs in the state of an instance that repeats nothing.

It sends what a durable checkpoint has, and begins with its newest one, whatever was lost meanwhile: so what that
checkpoint depends on has to be as durable as the checkpoint. Every delta that has come is part of the state, until no
part of it is asked for any more. An instance that does repeat, and has lost its log with everything else on its host,
is given it from here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from clonos.protocol.ids import LogOffset, Origin


class KeptDeltas(ABC):
    """Of one instance, in the order in which they came."""

    @abstractmethod
    def keep(self, raw: bytes) -> None:
        """It has come."""

    @abstractmethod
    def read(self) -> list[bytes]:
        """All that are there."""

    @abstractmethod
    def forget(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """Those that say nothing of logs beyond these offsets."""
