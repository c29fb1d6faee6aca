"""The numbers of source channels that have names, as a driver gives them (`clonos.protocol.channel_numbering` has the
rules).

A task that meets a name without a number asks the driver (`org.clonos.spark.executor.ChannelNumbers`), where a thread
answers as soon as the number is durable in the checkpoint. The tasks of each start of the query ask anew, so that no
executor uses a number that a checkpoint which was restored from a copy does not have.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from clonos.errors import CheckpointMismatch, ClonosError, StorageUnavailable
from clonos.json_text import parsed_json
from clonos.protocol.channel_numbering import Numbering
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.ids import NodeId, channel_origin, epoch_after
from clonos.protocol.source_channels import Numbered
from clonos.protocol.topology import Node, Topology
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.identity import only_topic
from clonos.storage.channel_pages import ChannelPages
from clonos.storage.epoch_plan import OFFSETS

_CHANNEL: Final = re.compile(r"channel from node (\d+), partition (\d+)")
"""As `clonos.protocol.frontier` says it."""
_NUMBER: Final = re.compile(r"\bchannel (\d+)(?=, position \d)")
"""As a place says it (`clonos.errors.Where`)."""


class SourceChannels:
    """The source channels of one query in one driver."""

    def __init__(
        self, plugin_numbering: Any, pages: ChannelPages, query: str, only_named: Collection[int]
    ) -> None:
        """`plugin_numbering` is the Java class `Numbering`, `only_named` the nodes whose channels have names only."""
        self._plugin_numbering = plugin_numbering
        self._query = query
        self._only_named = frozenset(only_named)
        self._numbering = Numbering(pages)
        self._active = bool(only_named) or bool(pages.pages())  # a query without such channels keeps no pages
        self._thread: threading.Thread | None = None
        self._open: Any = None

    def begin(
        self, start: Generation, known: Iterable[Numbered] = (), *, heard_of: Generation = NO_GENERATION
    ) -> None:
        """As `Numbering.begin`, where there are channels with names."""
        if self._active:
            _carried_out(self._numbering.begin(start, known, heard_of=heard_of))

    def tables(self, start: Generation) -> dict[int, str]:
        """By source node whose channels go by name: under which name tasks ask for their numbers in this start."""
        nodes = self._only_named | self._numbering.numbers.nodes
        return {node: f"{self._query}/{start}/{node}" for node in nodes}

    def named(self, text: str) -> str:
        """A message about channels, with where they come from, and their names."""

        def with_name(match: re.Match[str]) -> str:
            name = self._numbering.numbers.name(NodeId(int(match[1])), int(match[2]))
            return match[0] if name is None else f"{match[0]} ({name!r})"

        return _CHANNEL.sub(with_name, _NUMBER.sub(_come_from, text))

    def open(self, start: Generation) -> None:
        """From now on tasks of this start of the query are answered, and no others."""
        if not self._active:
            return
        self.stop()
        self._open = self._plugin_numbering.open(self._query, start)
        self._thread = threading.Thread(
            target=self._answer, args=(self._open,), name="clonos-channels", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Tasks that ask from now on are refused."""
        if self._open is not None and self._thread is not None:
            with suppress(Exception):  # the JVM may be gone
                self._open.close()
            self._thread.join()
            self._open = self._thread = None

    def _answer(self, requests: Any) -> None:
        with suppress(Exception):  # the JVM ends
            while (request := requests.next()) is not None:
                try:
                    request.answer(self._give(request.node(), request.name(), request.known()))
                except ClonosError as error:
                    request.refuse(type(error).__name__, str(error))
                except Exception as error:  # whatever it is: a task waits for an answer
                    request.refuse(StorageUnavailable.__name__, f"{type(error).__name__}: {error}")

    def _give(self, node: NodeId, name: str, known: int) -> list[str]:
        _carried_out(self._numbering.give([(node, name)]))
        new = self._numbering.numbers.since(node, known)
        return [text for one in new for text in (one.name, str(one.number))]


def _come_from(match: re.Match[str]) -> str:
    node, partition = channel_origin(int(match[1]))
    return f"channel from node {node}, partition {partition}"


def numbers_without_pages(checkpoint: Checkpoint, before: Topology, program: Topology) -> list[Numbered]:
    """The channels of a Kafka topic that has been read alone until now, whose partitions were their own numbers. Raises
    CheckpointMismatch where it is not known which ones it had."""
    nodes = {node.number: node for node in before.nodes}
    found: list[Numbered] = []
    for node in program.nodes:
        topic = _only_topic(nodes.get(node.number))
        if topic is None or _only_topic(node) is not None:
            continue
        offsets = checkpoint.files_of(OFFSETS, [epoch_after(checkpoint.passed()), checkpoint.passed()])
        partitions = {one for raw in offsets.values() for one in _partitions(raw, topic)}
        if not partitions:
            raise CheckpointMismatch(
                f"the topics of {node.name!r} change in the query's first epoch, of which it is not known which "
                f"partitions of {topic!r} it has read",
                hint=f"Read {topic!r} alone until an epoch has committed, or use a new checkpointLocation",
            )
        found += [Numbered(node.number, one, f"{topic}/{one}") for one in sorted(partitions)]
    return found


def _only_topic(node: Node | None) -> str | None:
    said: Mapping[str, str] = (node.source if node is not None else None) or {}
    return only_topic(said) if said.get("kind") == "kafka" else None


def _partitions(raw: bytes, topic: str) -> Iterator[int]:
    """The partitions of a topic in Spark's offsets of an epoch, which have a line for each source."""
    for line in raw.decode().splitlines():
        with suppress(ValueError, AttributeError):
            yield from map(int, parsed_json(line).get(topic, {}))


def _carried_out(steps: Iterable[None]) -> None:
    for _ in steps:
        pass
