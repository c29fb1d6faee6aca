"""The replica servers that a driver starts on its host: one, or two where operators have standbys.

A standby is never on the server of its primary, so that losing a server loses one of them. Each has a data directory of
its own; the first one's is also the home of what all have in common.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from standby.holders import SERVER_FOLDER
from standby.launcher import ReplicaServer
from standby.spec import QuerySpec


class ReplicaServers:
    """Started when made."""

    def __init__(self, spec: QuerySpec, count: int, *, entry: str | None = None) -> None:
        self._servers: list[ReplicaServer] = []
        try:
            for number in range(count):
                data = spec.data if number == 0 else os.path.join(spec.data, f"{SERVER_FOLDER}{number}")
                document = {**spec.to_document(), "data": data}
                self._servers.append(ReplicaServer(document, data, entry=entry).start())
        except BaseException:
            self.stop()
            raise

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where conduits connect to; the first is where an instance begins."""
        return tuple(f"unix:{server.socket_path}" for server in self._servers)

    def stop(self) -> None:
        """Servers, replicas and sockets are gone when this returns."""
        for server in self._servers:
            server.stop()

    def commit(self, epoch: int, truncate: Mapping[str, Any]) -> None:
        for server in self._servers:
            server.commit(epoch, truncate)

    def set_generation(self, generation: int) -> None:
        for server in self._servers:
            server.set_generation(generation)

    def status(self) -> dict[str, Any]:
        """Of all servers; each replica says on which it is."""
        return merged([server.status() for server in self._servers])


def merged(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The status of the first server, with what there are several of from all."""
    whole = dict(each[0])
    for name in ("spares", "failures", "recoveries", "recent_deaths"):
        whole[name] = [entry for status in each for entry in status[name]]
    whole["replicas"] = [
        {**replica, "server": number} for number, status in enumerate(each) for replica in status["replicas"]
    ]
    for name in ("waiting", "deaths"):
        whole[name] = sum(status[name] for status in each)
    whole["others"] = [
        {name: status[name] for name in ("pid", "grpc_pid", "started", "resident")} for status in each[1:]
    ]
    return whole
