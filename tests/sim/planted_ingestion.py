"""Bugs of the times that latency is measured by, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from planted import CRASHES, Planted, planted

from clonos.protocol.engine import output_commit
from clonos.protocol.ingestion import Ingested, PendingInput
from clonos.protocol.roles.operator_session import OperatorSession

Patch = pytest.MonkeyPatch


def input_that_waits_has_no_time(patch: Patch) -> None:
    """Rows that an instance repeats are taken to have come with the bundle that let them be repeated."""

    def keep(self: PendingInput, waiting: Mapping[int, int]) -> None:
        self._taken.clear()

    patch.setattr(PendingInput, "keep", keep)


def a_sink_counts_rows_again_that_it_has(patch: Patch) -> None:
    def within(ingested: Iterable[Ingested], parts: Iterable[tuple[int, int]]) -> Iterable[Ingested]:
        return ingested

    patch.setattr(output_commit, "within", within)


def gathered_input_has_no_time(patch: Patch) -> None:
    """Rows that the end of an epoch makes of its records are taken to be made of nothing but state."""

    def input_is_used(self: OperatorSession[Any, Any, Any]) -> None:
        self._input.keep(self.live.waiting)

    patch.setattr(OperatorSession, "_input_is_used", input_is_used)


INGESTION: dict[str, Planted] = {
    bug.__name__: planted(bug, rates=CRASHES, timers=False, **changes)
    for bug, changes in (
        (input_that_waits_has_no_time, {}),
        (a_sink_counts_rows_again_that_it_has, {}),
        (gathered_input_has_no_time, {"per_epoch": True, "realtime": False, "poison": 0}),
    )
}
