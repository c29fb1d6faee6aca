"""What a Kafka sink asks of a cluster. The real one is `kafka_client`; tests imitate one.

Nothing here knows what the messages mean. What can pass by itself is `SinkUnavailable`; what waiting cannot mend is
`SinkError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

WAIT_S: Final = 5.0
"""How long one request is waited for; the sink's patience asks again."""


@dataclass(frozen=True, slots=True)
class Message:
    """Of a user's topic; `row` is the id of the row, for errors. Without `partition` the key chooses it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    row: str
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of a partition, each with its offset, and where the next page begins, if there is one."""

    messages: Sequence[tuple[int, bytes]]
    then: int | None = None


class Transactions(Protocol):
    """One incarnation of a transactional id: whatever held it before can commit nothing any more."""

    aborted: int
    """How many are known to have been aborted."""

    def commit(self, messages: Sequence[Message], topic: str, partition: int, entry: Sequence[bytes]) -> None:
        """All of it in one transaction. After SinkUnavailable it may have taken effect, and this is of no use any
        more; after SinkError it has not."""
        ...

    def close(self) -> None: ...


class Cluster(Protocol):
    """What a Kafka sink asks of a cluster. Every method raises SinkUnavailable and SinkError."""

    def ensure_topic(self, topic: str, partitions: int) -> None:
        """It is there and has so many partitions, or more; its messages are kept for ever."""
        ...

    def partitions(self, topic: str) -> int:
        """How many it has; 0 where there is no such topic."""
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """All of them are visible when this returns, and their order within a partition is that of the sequence. After
        SinkUnavailable some may be, or become so any time later; after SinkError some may be."""
        ...

    def append(self, topic: str, partition: int, message: bytes) -> int:
        """Returns the offset. After SinkUnavailable it may come to lie there still, any time later."""
        ...

    def read(self, topic: str, partition: int, begin: int) -> Page:
        """Messages from the offset on, and of transactions only those of committed ones. All that were committed before
        this was asked for are there, here or in the pages that follow; none where there is no such partition."""
        ...

    def delete_before(self, topic: str, partition: int, offset: int) -> None: ...

    def transactions(self, identity: str, topic: str) -> Transactions:
        """Of a transactional id; see there. Returns when nothing of its predecessor is under way. `topic` is there."""
        ...

    def close(self) -> None: ...
