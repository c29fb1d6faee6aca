"""Bugs of fences, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from typing import Any

import pytest
from planted import LOSSES, OTHERS, Planted, planted

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.roles.admission import Fences
from clonos.protocol.roles.host_placement import HostPlacement
from clonos.sim.plan import Fault, SinkKind
from clonos.sim.sinks import SinkPlace

Patch = pytest.MonkeyPatch


def token_is_ignored_by_the_sink(patch: Patch) -> None:
    patch.setattr(SinkPlace, "_check_fence", lambda self, fence: None)


def token_is_ignored_by_the_server(patch: Patch) -> None:
    patch.setattr(Fences, "raise_to", lambda self, origin, fence: True)


def old_replica_is_not_waited_for(patch: Patch) -> None:
    def place(self: HostPlacement[Any, Any], connection: Any) -> None:
        current = self._serving.get(connection.said.origin)
        if current is not None and current.may_go_on(connection.said):
            self._hand_over(current, connection)
        else:
            self._serve(connection)

    patch.setattr(HostPlacement, "_place", place)


def sinks_are_not_fenced_before_logs_are_read(patch: Patch) -> None:
    patch.setattr(SinkPlace, "raise_fence", lambda self, fence: None)


FENCING: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            token_is_ignored_by_the_sink,
            first=68,
            rates={Fault.SINK_LATE: 0.2, Fault.REPLICA_CRASH: 0.03},
            **OTHERS,
        ),
        planted(
            token_is_ignored_by_the_server,
            rates={Fault.TASK_ZOMBIE: 0.02, Fault.REPLICA_CRASH: 0.02},
            realtime=False,
            **OTHERS,
        ),
        planted(old_replica_is_not_waited_for, rates={Fault.REPLICA_STOP: 0.02}, **OTHERS),
        planted(
            sinks_are_not_fenced_before_logs_are_read,
            first=9,
            rates={**LOSSES, Fault.SINK_LATE: 0.5, Fault.QUERY_RESTART: 0.03},
            effects=False,
            depth=FULL,
            sink=SinkKind.TRANSACTION,
            realtime=True,
            **OTHERS,
        ),
    )
}
