"""What the replica process asks of an instance, whatever it is: an operator's or a sink's.

The process's loop (`replica`) knows frames and epochs; a host knows what to do with them. Both hosts drive the same
sans-IO core and do the IO that it asks for, in the order it asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from clonos.wire.messages import Bundle, Hello, Resume
from clonos_standby.replica.connection import Connection


class Host(Protocol):
    """One instance inside a replica process."""

    @property
    def progress(self) -> int:
        """Records processed, for heartbeats."""
        ...

    recovered: dict[str, Any] | None
    """The recovery that has come to its end, until somebody has told of it."""

    def figures(self) -> dict[str, float]:
        """How far this process has come, for whoever watches (`account`)."""
        ...

    def warn(self, hello: Hello, previous: Mapping[str, Any] | None) -> None:
        """A conduit has connected; how the process that served the instance before has died, if one has."""
        ...

    def look(self) -> None:
        """From the heartbeat's thread, now and then: does not return where the instance is stuck."""
        ...

    def open(self, hello: Hello, resume: Resume, connection: Connection) -> None:
        """A conduit has connected; restore first if this is the instance's first connection here."""
        ...

    @property
    def recovered_end(self) -> int:
        """The offset up to which the instance has its log; 0 where it has none."""
        ...

    def start(self) -> None:
        """The conduit has been welcomed: begin the epoch."""
        ...

    def bundle(self, bundle: Bundle) -> None: ...

    def tick(self) -> None: ...

    def end(self, seq: int) -> int:
        """Input is exhausted: make the epoch's end durable; the last output number."""
        ...

    def commit(self, epoch: int, stable: Mapping[tuple[int, int], int]) -> None:
        """Spark has committed an epoch: logs before these offsets are not needed any more."""
        ...

    def wakeups(self) -> Any:
        """A file descriptor that becomes readable when background work has finished, or None."""
        ...

    def finished(self) -> None:
        """Background work has finished: tell the conduit."""
        ...

    def close(self) -> None: ...
