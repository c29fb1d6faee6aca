"""Bugs of the times that latency is measured by, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from planted import CRASHES, Planted, planted

from clonos.protocol.engine import output_commit
from clonos.protocol.ingestion import Ingested, PendingInput

Patch = pytest.MonkeyPatch


def input_that_waits_has_no_time(patch: Patch) -> None:
    """Rows that an instance repeats are taken to have come with the bundle that let them be repeated."""

    def keep(self: PendingInput, waiting: Mapping[int, int]) -> None:
        self._taken.clear()

    patch.setattr(PendingInput, "keep", keep)


def a_sink_counts_rows_again_that_it_has(patch: Patch) -> None:
    def within(ingested: Iterable[Ingested], begin: int, end: int) -> Iterable[Ingested]:
        return ingested

    patch.setattr(output_commit, "within", within)


INGESTION: dict[str, Planted] = {
    bug.__name__: planted(bug, rates=CRASHES, timers=False)
    for bug in (input_that_waits_has_no_time, a_sink_counts_rows_again_that_it_has)
}
