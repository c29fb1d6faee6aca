"""Bugs of fences, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.protocol.ids import Origin
from clonos.sim.server import ReplicaServer
from clonos.sim.sinks import SinkPlace

Patch = pytest.MonkeyPatch


def token_is_ignored_by_the_sink(patch: Patch) -> None:
    patch.setattr(SinkPlace, "_check_fence", lambda self, fence: None)


def token_is_ignored_by_the_server(patch: Patch) -> None:
    def raise_fence(self: ReplicaServer, origin: Origin, fence: int) -> bool:
        self.world.checks.fence_raised(self.name, origin, fence)
        return True

    patch.setattr(ReplicaServer, "raise_fence", raise_fence)


def old_replica_is_not_waited_for(patch: Patch) -> None:
    def place(self: ReplicaServer, origin: Origin, link: Any, hello: Any) -> None:
        current = self._serving.get(origin)
        if current is not None and current.serves(hello):
            self._hand_over(current, link, hello)
        else:
            self._serve(origin, link, hello)

    patch.setattr(ReplicaServer, "_place", place)


def sinks_are_not_fenced_before_logs_are_read(patch: Patch) -> None:
    patch.setattr(SinkPlace, "raise_fence", lambda self, fence: None)
