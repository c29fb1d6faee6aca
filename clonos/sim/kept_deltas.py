"""Others' logs, as a part of an instance's simulated state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.kept_deltas import KeptDeltas


class KeptInState(KeptDeltas):
    """See the module."""

    def __init__(self, kept: Iterable[bytes] = ()) -> None:
        self.kept = list(kept)

    def keep(self, raw: bytes) -> None:
        self.kept.append(raw)

    def read(self) -> list[bytes]:
        return list(self.kept)

    def forget(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        self.kept = [raw for raw in self.kept if still_needed(raw, truncation_points)]
