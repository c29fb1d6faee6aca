"""Where the conduits of one start of the query connect to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clonos.protocol.fence import Generation
from clonos.wire.tls import Tls
from clonos_standby.cluster.address import ServerAddress


@dataclass(frozen=True, slots=True)
class Address:
    """Where a generation's conduits connect to, and with what right."""

    servers: tuple[ServerAddress | None, ...]  # the driver's first; None of one that has not been reached
    token: str
    generation: Generation
    tls: Tls | None = None
    spread: bool = False  # conduits are on several hosts
    # Of sources whose channels go by name: under which name their numbers are asked for.
    tables: Mapping[int, str] = field(default_factory=dict)

    def to_json(self, mode: str, spill: str | None) -> dict[str, Any]:
        """What conduits are told."""
        return {
            "servers": [server.to_json() if server is not None else None for server in self.servers],
            "tls": self.tls.to_dict() if self.tls is not None else None,
            "token": self.token,
            "generation": self.generation,
            "mode": mode,
            "spill_dir": spill,
        }
