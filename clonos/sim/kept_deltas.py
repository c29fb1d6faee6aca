"""Others' logs, as a part of an instance's simulated state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clonos.protocol.recovery.causal.kept_deltas import KeptDeltas


class KeptInState(KeptDeltas):
    """See the module."""

    def __init__(self, fold_from: int, kept: Mapping[int, bytes] | None = None) -> None:
        self.kept = dict(kept or {})
        super().__init__(fold_from)

    def rows(self, since: int = 0) -> Iterator[tuple[int, bytes]]:
        yield from sorted((number, raw) for number, raw in self.kept.items() if number >= since)

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        for number, raw in changes.items():
            if raw is None:
                del self.kept[number]
            else:
                self.kept[number] = raw
