"""Where conduits find a replica server: by a Unix socket on the server's own host, over TCP from any other.

Which of both is the conduit's to say: the task that it belongs to may run on any host, and the driver cannot know on
which. Hosts are told apart by the names that Spark gives them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """`near` as `unix:/path`, `far` as `tcp:host:port` or `tls:host:port`; at least one of them."""

    host: str = ""
    near: str | None = None
    far: str | None = None

    def to_json(self) -> dict[str, str]:
        """As the conduit's specification has it."""
        said = {"host": self.host, "near": self.near, "far": self.far}
        return {name: value for name, value in said.items() if value}
