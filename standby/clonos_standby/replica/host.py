"""What the replica process asks of the surroundings of an instance, whatever it is: an operator's or a sink's.

What is said to the conduit, and in which order, is the session's matter (`protocol.roles`).
"""

from __future__ import annotations

from typing import Any, Protocol

from clonos.protocol.engine.instance import Bundle as Records
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.roles.replica_session import InstanceSession
from clonos.wire.messages import Bundle, Hello
from clonos_standby.replica.connection import Connection


class Host(Protocol):
    """One instance inside a replica process."""

    @property
    def session(self) -> InstanceSession: ...

    recovered: dict[str, Any] | None
    """The recovery that has come to its end, until the process has told the supervisor of it."""

    stored_round: StoredRound | None
    """The checkpoint that has become durable, until the process has told the supervisor of it."""

    def figures(self) -> dict[str, float]:
        """How far this process has come, for the status and the metrics (`server_stats`)."""
        ...

    def epoch_report(self) -> bytes:
        """What the instance has done in the epoch that has ended (`wire.epoch_report`)."""
        ...

    def attach(self, connection: Connection) -> None:
        """A conduit has connected."""
        ...

    def promote(self, hello: Hello) -> None:
        """The standby is about to take over."""
        ...

    def read(self, bundle: Bundle) -> Records:
        """The records of a frame."""
        ...

    def look(self) -> None:
        """From the heartbeat's thread, now and then: does not return where the instance is stuck."""
        ...

    def wakeups(self) -> Any:
        """A file descriptor that becomes readable when background work has finished, or None."""
        ...

    def finished(self) -> None:
        """Background work has finished."""
        ...

    def close(self) -> None: ...
