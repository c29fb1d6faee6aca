"""The numbers of source channels: what stands behind a name, dense, and for the life of a checkpoint.

A record's identity is (channel, position). Where the source's own partitions are not plain numbers (a topic and its
partition, a file, a shard), the channel has a name, and every source node counts its names: 0, 1, 2, ... in the order
in which they were first seen. A number says which records are repetitions, so it must mean the same name in every
re-execution and after every restart, and is never given twice.

A task that meets a name without a number asks the driver for one. The driver tells it only when the entry is durable
(`clonos.protocol.channel_numbering`): a number that was lost again could be given to another name, whose records
would then pass for repetitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import LOCAL_MAX, NodeId


class Numbered(NamedTuple):
    """A name and its number, of a source node."""

    node: NodeId
    number: int
    name: str


class ChannelNumbers:
    """The names that have a durable number, and the numbers."""

    def __init__(self, entries: Iterable[Numbered] = ()) -> None:
        self._numbers: dict[tuple[NodeId, str], int] = {}
        self._names: dict[tuple[NodeId, int], str] = {}
        self._next: dict[NodeId, int] = {}
        self.add(entries)

    def add(self, entries: Iterable[Numbered]) -> None:
        """These have become durable, or were found so. Raises CheckpointMismatch where they contradict others."""
        for entry in entries:
            node, number, name = entry
            if (
                self._numbers.get((node, name), number) != number
                or self._names.get((node, number), name) != name
            ):
                raise CheckpointMismatch(
                    f"channel {number} of source node {node} is numbered twice: {name!r} is "
                    f"{self._numbers.get((node, name))}, {number} is {self._names.get((node, number))!r}",
                    hint="Restore the checkpoint's folder clonos/channels from a copy",
                )
            self._numbers[node, name] = number
            self._names[node, number] = name
            self._next[node] = max(self._next.get(node, 0), number + 1)

    def number(self, node: NodeId, name: str) -> int | None:
        return self._numbers.get((node, name))

    def name(self, node: NodeId, number: int) -> str | None:
        return self._names.get((node, number))

    @property
    def nodes(self) -> frozenset[NodeId]:
        """The source nodes that have numbered channels."""
        return frozenset(self._next)

    def entries(self) -> list[Numbered]:
        """All, in the order in which they were added."""
        return [Numbered(node, number, name) for (node, name), number in self._numbers.items()]

    def since(self, node: NodeId, first: int) -> list[Numbered]:
        """Those of a node from a number on: what is assigned later has a higher one."""
        given = range(first, self._next.get(node, 0))
        return [
            Numbered(node, number, self._names[node, number])
            for number in given
            if (node, number) in self._names
        ]

    def assign(self, asked: Iterable[tuple[NodeId, str]]) -> list[Numbered]:
        """Numbers for those names, by node, that have none: to be made durable, then added, then told."""
        following = dict(self._next)
        new: list[Numbered] = []
        for node, name in dict.fromkeys(asked):
            if (node, name) in self._numbers:
                continue
            number = following.get(node, 0)
            if number > LOCAL_MAX:
                raise CheckpointMismatch(f"source node {node} has no channel number left for {name!r}")
            following[node] = number + 1
            new.append(Numbered(node, number, name))
        return new
