"""Bugs of streams that feed several nodes, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from planted import CRASHES, OTHERS, RESTARTS, Planted

from clonos.protocol import destination
from clonos.protocol.destination import Destinations, Reader
from clonos.protocol.engine.output_stage import OutputStage
from clonos.protocol.recovery.causal.delta_journal import DeltaJournal, Receipts
from clonos.protocol.side_output import OutputName
from clonos.sim.dimensions.fan_out import fanned_out
from clonos.sim.dimensions.side_outputs import with_side_outputs
from clonos.sim.plan import Plan

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class FannedOut(Planted):
    """In runs whose streams feed several nodes."""

    side_outputs: bool = False

    def plan(self, plan: Plan) -> Plan:
        fanned = fanned_out(super().plan(plan), Random(f"{plan.seed}/fan-out"))
        if not self.side_outputs:
            return fanned
        return replace(
            fanned, dataflow=with_side_outputs(fanned.dataflow, Random(f"{plan.seed}/side outputs"))
        )


def fanned(
    plant: Any, *, side_outputs: bool = False, first: int = 0, rates: Any = (), **changes: Any
) -> FannedOut:
    changed = tuple(changes.items()), tuple(rates.items()) if rates else ()
    return FannedOut(plant, 200, first, *changed, side_outputs=side_outputs)


def what_came_over_more_hops_hides_what_comes_over_fewer(patch: Patch) -> None:
    """A piece that came elided is taken for the piece."""
    real = Receipts.__init__
    patch.setattr(Receipts, "__init__", lambda self, *, by_hops=True: real(self, by_hops=False))


def only_the_first_reader_counts_as_sent_to(patch: Patch) -> None:
    """A snapshot is chosen to begin with although another reader has not received all of it."""
    real = OutputStage.release

    def release(self: OutputStage, encoded: Any, produced: list[Any], destinations: Destinations) -> None:
        before = dict(self.sent)
        real(self, encoded, produced, destinations)
        first = set(destinations[0]) if destinations else set()
        self.sent = {to: number for to, number in self.sent.items() if to in first or to in before}
        self.sent |= {to: before[to] for to in before.keys() - first}

    patch.setattr(OutputStage, "release", release)


def readers_share_the_marks_of_their_instances(patch: Patch) -> None:
    """What instance 0 of one reader was sent, instance 0 of another is taken to have."""
    real = DeltaJournal.delta_for
    patch.setattr(DeltaJournal, "delta_for", lambda self, destination: real(self, destination % 2))


def rows_of_a_side_output_go_to_all_readers(patch: Patch) -> None:
    real = destination._of_output

    def of_output(reader: Reader, first: int, rows: list[Any], outputs: list[OutputName]) -> list[int]:
        return real(reader, first, rows, [reader.output] * len(rows))

    patch.setattr(destination, "_of_output", of_output)


RESUMED = {"resumes": True, "realtime": True, "snapshot_rate": 0.4, **OTHERS}

FAN_OUT: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        fanned(what_came_over_more_hops_hides_what_comes_over_fewer, first=4, depth=1, **OTHERS),
        fanned(only_the_first_reader_counts_as_sent_to, first=9, rates=RESTARTS | CRASHES, **RESUMED),
        fanned(readers_share_the_marks_of_their_instances, **OTHERS),
        fanned(rows_of_a_side_output_go_to_all_readers, first=9, side_outputs=True, **OTHERS),
    )
}
