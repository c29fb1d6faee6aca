"""Planted bugs about queries in which some operators have eager checkpoints, and others uncoordinated ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import RESTARTS, Planted
from planted_recovery import planted_in

from clonos.protocol.ids import Origin
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.roles.holding_sink_session import HoldingSinkSession
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.protocol.topology import NodeKind, Topology
from clonos.sim.coordinator import Coordinator
from clonos.sim.rollback_plan import mixed

Patch = pytest.MonkeyPatch


def eager_operator_keeps_its_newest_checkpoint_alone(patch: Patch) -> None:
    """Although what is before it may go back."""
    real = Recoveries.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[Recoveries], topology: Topology, default: RecoveryKind, own: Any = None) -> Recoveries:
        made: Recoveries = real(cls, topology, default, own)
        eager = [number for number, kind in made.by_node.items() if kind.replaces]
        return replace(made, goes_back=made.goes_back.difference(eager))

    patch.setattr(Recoveries, "of", classmethod(of))


def sink_behind_an_operator_that_goes_back_shows_at_once(patch: Patch) -> None:
    real = Recoveries.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[Recoveries], topology: Topology, default: RecoveryKind, own: Any = None) -> Recoveries:
        made: Recoveries = real(cls, topology, default, own)
        sinks = (node.number for node in topology.nodes if node.kind is NodeKind.SINK)
        return replace(made, by_node={**made.by_node, **dict.fromkeys(sinks, RecoveryKind.EAGER)})

    patch.setattr(Recoveries, "of", classmethod(of))


def sink_that_shows_at_once_is_looked_for_at_its_checkpoints(patch: Patch) -> None:
    """It has none."""
    patch.setattr(Coordinator, "_has_checkpoints", lambda self, origin: True)


def sink_that_holds_stands_where_its_store_does(patch: Patch) -> None:
    def has_checkpoints(self: Coordinator, origin: Origin) -> bool:
        return self._topology.node(origin.node).kind is NodeKind.OPERATOR

    patch.setattr(Coordinator, "_has_checkpoints", has_checkpoints)


def process_of_uncoordinated_checkpoints_is_replaced(patch: Patch) -> None:
    """As those of its neighbours are."""
    for session in (OperatorSession, HoldingSinkSession):
        module = __import__(session.__module__, fromlist=["check_replaceable"])
        patch.setattr(module, "check_replaceable", lambda policy, request, name: None)


of = planted_in(mixed)


MIXED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(eager_operator_keeps_its_newest_checkpoint_alone, rates=RESTARTS),
        of(sink_behind_an_operator_that_goes_back_shows_at_once),
        of(sink_that_shows_at_once_is_looked_for_at_its_checkpoints),
        of(sink_that_holds_stands_where_its_store_does),
        of(process_of_uncoordinated_checkpoints_is_replaced),
    )
}
