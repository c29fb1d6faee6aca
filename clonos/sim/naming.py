"""Source partitions under names, as Kafka's topics or files are: which one has which, when it is there, its number.

Without names a partition's own number is its channel. With them every partition is one of a topic; some are added while
the query runs; and a topic may be made anew under its name when it has been read, with positions from 0 on, which no
query can go on with unless none of its instances has seen the old one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from clonos.protocol.ids import Epoch, NodeId, Origin, channel_id
from clonos.protocol.source_channels import ChannelNumbers
from clonos.sim.records import Record

if TYPE_CHECKING:
    from clonos.sim.world import World

LATEST = 4  # epochs in which a partition may be added


class Naming:
    """The names of source partitions in one run, and how partitions come and go."""

    def __init__(self, world: World) -> None:
        plan, rng = world.plan, world.choices.stream("naming")
        self._world = world
        self._names: dict[Origin, str] = {}
        self._added: dict[Origin, int] = {}
        self._replaces: dict[Origin, Origin] = {}
        for partition in world.partitions if plan.topics else ():
            self._names[partition] = (
                f"topic{partition.instance % plan.topics}/{partition.instance // plan.topics}"
            )
            self._added[partition] = rng.randint(0, LATEST) if plan.late_partitions else 0
        if plan.recreated:
            self._recreate()

    def _recreate(self) -> None:
        """A source's second partition takes the name of its first, when that has been read."""
        for partition in self._names:
            first = Origin.of(partition.node, 0)
            if partition.instance == 1:
                self._names[partition], self._replaces[partition] = self._names[first], first

    def is_there(self, partition: Origin, epoch: Epoch, begin: dict[Origin, int]) -> bool:
        """Whether it has records in an epoch that begins at these places."""
        old = self._replaces.get(partition)
        read = old is None or begin[old] == len(self._world.partitions[old])
        return read and epoch >= self._added.get(partition, 0)

    def from_on(self, partition: Origin, duration: int) -> int:
        """When a real-time epoch has its first record: what is made anew is so while the query runs."""
        return duration * 9 // 10 if partition in self._replaces else 0

    def names(self, partitions: list[Origin]) -> list[tuple[NodeId, str]]:
        """What those who read these ask for, in the order in which they happen to."""
        asked = [
            (partition.node, self._names[partition]) for partition in partitions if partition in self._names
        ]
        self._world.choices.stream(f"asked {len(asked)}").shuffle(asked)
        return asked

    def identified(
        self, partition: Origin, records: list[tuple[int, Record]], numbers: ChannelNumbers
    ) -> list[tuple[int, Record]]:
        """The records as Spark hands them on."""
        name = self._names.get(partition)
        if name is None or not records:
            return records
        number = numbers.number(partition.node, name)
        assert number is not None, f"no task has asked for the number of {name}"
        channel = channel_id(partition.node, number)
        return [(target, replace(record, channel=channel)) for target, record in records]
