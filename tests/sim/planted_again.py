"""Planted bugs about epochs that are done again as a whole, and about what sinks hold until one has committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, RESTARTS, Planted
from planted_mixed import of as mixed
from planted_recovery import planted_under

from clonos.protocol.ids import Epoch
from clonos.protocol.recovery import recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.rollback.held_output import HeldOutput, HeldWrite
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.roles import holding_sink_session
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.protocol.topology import NodeKind, Topology
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def task_that_has_ended_is_run_again_although_others_have_read_it(patch: Patch) -> None:
    patch.setattr(Incarnation, "ends_at", None)


def rows_are_seen_when_their_sink_has_ended_its_epoch(patch: Patch) -> None:
    """The epoch may be done again."""
    real = holding_sink_session.HoldingSinkSession.end

    def end(self: Any, last: int) -> Any:
        number = yield from real(self, last)
        yield from self._show(self._held.take_all())
        return number

    patch.setattr(holding_sink_session.HoldingSinkSession, "end", end)


def what_an_idle_sink_holds_is_left_to_its_next_epoch(patch: Patch) -> None:
    """Which begins when there is more input."""

    def show_committed(self: QueryCoordinator, committed: Epoch, **how: Any) -> Any:
        yield from ()
        return True

    patch.setattr(QueryCoordinator, "show_committed", show_committed)


def driver_tries_again_under_the_same_fence(patch: Patch) -> None:
    """It is fenced by what it has begun itself."""
    real = SinkEnd.request
    patch.setattr(SinkEnd, "request", lambda self, *said, tried: real(self, *said, tried=0))


def what_was_shown_before_a_failure_is_shown_again(patch: Patch) -> None:
    patch.setattr(HeldOutput, "seen", lambda self, cursors: None)


def epoch_that_has_not_committed_is_as_good_as_one_that_has(patch: Patch) -> None:
    def may_be_seen(self: HeldWrite, committed: Epoch, safe: Any) -> bool:
        return self.epoch <= committed + 1

    patch.setattr(HeldWrite, "may_be_seen", may_be_seen)


def what_is_behind_an_operator_that_begins_again_keeps_its_own_recovery(patch: Patch) -> None:
    """Its sinks show rows at once."""
    real = recoveries.Recoveries.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, topology: Topology, default: RecoveryKind, own: Any = None) -> Any:
        made = real(cls, topology, default, own)
        again = [number for number, kind in made.by_node.items() if kind.begins_epochs_again]
        sinks = {node.number for node in topology.nodes if node.kind is NodeKind.SINK}
        kept = {n: RecoveryKind.EAGER if n in sinks else (own or {}).get(n, default) for n in again}
        return replace(made, by_node={**made.by_node, **kept})

    patch.setattr(recoveries.Recoveries, "of", classmethod(of))


of = planted_under(RecoveryKind.BATCH)
IDLE: dict[str, Any] = {"realtime": False, "timers": False}
FILES = {**CRASHES, Fault.FILES_LOST: 0.1}

AGAIN: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(task_that_has_ended_is_run_again_although_others_have_read_it, realtime=False, rates=FILES),
        of(rows_are_seen_when_their_sink_has_ended_its_epoch, rates=RESTARTS),
        of(what_an_idle_sink_holds_is_left_to_its_next_epoch, first=114, **IDLE),
        of(
            driver_tries_again_under_the_same_fence,
            first=245,
            rates={**CRASHES, Fault.SINK_BEFORE: 0.5},
            **IDLE,
        ),
        of(what_was_shown_before_a_failure_is_shown_again, first=98, rates=RESTARTS),
        of(epoch_that_has_not_committed_is_as_good_as_one_that_has, rates=RESTARTS),
        mixed(what_is_behind_an_operator_that_begins_again_keeps_its_own_recovery),
    )
}
