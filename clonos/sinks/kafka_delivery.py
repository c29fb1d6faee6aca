"""How a bundle of a Kafka sink takes effect: what its two modes have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from clonos.errors import SinkError, Where
from clonos.protocol.ids import Origin
from clonos.protocol.roles.fence_log import FenceLog
from clonos.protocol.roles.sink_fence import Holder, check_holding
from clonos.sinks.kafka_port import Cluster, Message
from clonos.sinks.kafka_side_topic import SideTopic
from clonos.sinks.port import Cursors

FULL_EVERY: Final = 64
"""Entries from one with all cursors to the next: a log is trimmed up to such a one."""


@dataclass(slots=True)
class Counts:
    """Of one writer."""

    committed: int = 0
    """Transactions."""
    aborted: int = 0
    """Transactions that are known to have been aborted, of which nothing is visible."""
    in_doubt: int = 0
    """Bundles of which it was not known whether they had taken effect. Before anything else is written that is found
    out, or they are written again as the same."""


@dataclass(frozen=True, slots=True)
class Held:
    """A sink instance, as its writer has taken it."""

    cluster: Cluster
    side: SideTopic
    topic: str
    origin: Origin
    mine: Holder
    partition: int
    layout: int
    """A number for how rows become messages."""
    counts: Counts = field(default_factory=Counts)

    def standing(self) -> FenceLog:
        """What stands in the fence log. Raises Fenced where another writer is the holder."""
        state = self.side.standing()
        check_holding(
            self.mine, state.holder(self.origin), origin=self.origin, kept_in=f"the topic {self.side.name}"
        )
        return state

    def check_mode(self, *, is_other: bool, other: str) -> None:
        """Raises SinkError where the log was written in the other mode."""
        if is_other:
            raise SinkError(
                f"the sink of node {self.origin.node} wrote with mode={other!r} before, and the topic {self.side.name} "
                "says so",
                where=Where(instance=self.origin.instance),
                hint=f"Go on with mode={other!r}, or begin with a new checkpoint: a row that is in doubt is written "
                "again, and in the other mode readers would not know it as the same",
            )


class Delivery(Protocol):
    """One incarnation after another of a writer's way into the topic. Every method raises Fenced, SinkUnavailable,
    SinkError."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether rows of an earlier bundle may be visible beyond where the log stands."""
        ...

    def begin(self) -> Cursors:
        """Nothing of another writer takes effect from here on, but for what is known already. Where the log stands."""
        ...

    def deliver(
        self, messages: Sequence[Message], before: Cursors, moved: Cursors, deltas: list[bytes]
    ) -> None:
        """A bundle. After SinkUnavailable its outcome is in doubt; `let_go`, then `begin`, tell."""
        ...

    def let_go(self) -> None:
        """Of what was begun. Never raises."""
        ...
