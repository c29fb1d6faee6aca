"""The shape of a query: nodes, edges, parallelism, and what else gives state, keys and time their meaning.

A checkpoint's state, logs and cursors are keyed by node and instance and were written under one such program. What of
it may change over a checkpoint, and when, is said in `clonos.protocol.versions.binding`; here it is only written down
and read.

Format version 1 said of a node its kind, name, parallelism, upstream, version, key and output alone. Version 2 knew no
side outputs and no second inputs, version 3 no watermark of a second input. What a document does not say is None, and
fits whatever the program says.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.side_output import MAIN, OutputName

FORMAT_VERSION = 4
FORMATS = (1, 2, 3, 4)


class NodeKind(enum.Enum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


class Column(NamedTuple):
    """One column, or one field of kept state."""

    name: str
    type: str
    nullable: bool = True


Columns = tuple[Column, ...]


Watermark: TypeAlias = tuple[str, int]
"""The column, "" for none, and the delay in microseconds."""


class SecondInput(NamedTuple):
    """The right one of an operator with two inputs: which of its upstream nodes feed it, its key, its event time."""

    upstream: tuple[int, ...]
    key: tuple[str, ...]
    key_types: tuple[str, ...]
    watermark: Watermark | None = None


class DerivedInput(NamedTuple):
    """What expressions make of the rows that it reads: as users read them, and which."""

    said: str
    digest: str
    columns: Columns


@dataclass(frozen=True, slots=True)
class StateVariable:
    """What is kept per key under a name; `process` and `applyInPandasWithState` keep one without a name."""

    name: str
    kind: str  # value, list or map
    columns: Columns
    key: Columns = ()  # of a map
    ttl: int | None = None  # microseconds


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `version` is the user's own: raised when a function changes on purpose.

    `migrates` are the state variables that this version brings up to date from another one's. `previous` and
    `previous_migrates` are what the program has beside that, and are not written down: the versions whose functions it
    can still run, and what those bring up to date, as (version, state variable).
    """

    number: NodeId
    kind: NodeKind
    name: str
    parallelism: int  # 0 for a source: as many partitions as it has
    upstream: tuple[int, ...] = ()
    version: str = "1"
    key: tuple[str, ...] = ()
    output: str = ""  # schema, as DDL or JSON
    key_types: tuple[str, ...] | None = None
    columns: Columns | None = None  # of the output; of a sink, of what it is given
    form: str | None = None  # which method of the API took the function
    timeout: str | None = None  # timeoutConf or timeMode; "" where the form has none
    per: str | None = None  # what a call covers, "batch" or "bundle"; "" where the form knows nothing of it
    initial_state: Columns = ()  # of the rows that keys began with, where there were any
    watermark: Watermark | None = None
    state: tuple[StateVariable, ...] | None = None
    source: Mapping[str, str] | None = (
        None  # its kind, where it is, and what defines its channels and positions
    )
    migrates: frozenset[str] = frozenset()
    previous: frozenset[str] = frozenset()
    previous_migrates: frozenset[tuple[str, str]] = frozenset()
    # By upstream node; MAIN where nothing is said
    reads: Mapping[int, OutputName] = field(default_factory=dict)
    side_outputs: Mapping[str, Columns] = field(default_factory=dict)
    right: SecondInput | None = None
    derived: Mapping[int, DerivedInput] = field(default_factory=dict)  # by upstream node, where there are any

    def to_document(self) -> dict[str, Any]:
        said = asdict(self)
        del said["previous"], said["previous_migrates"], said["derived"]
        if self.derived:
            said["derived"] = [[up, *of[:2], list(of.columns)] for up, of in sorted(self.derived.items())]
        if not self.initial_state:
            del said["initial_state"]
        return {
            **said,
            "reads": sorted(self.reads.items()),
            "side_outputs": {name: list(columns) for name, columns in self.side_outputs.items()},
            "kind": self.kind.value,
            "source": None if self.source is None else dict(self.source),
            "migrates": sorted(self.migrates),
        }

    def output_read(self, upstream: int) -> OutputName:
        """Which output of an upstream node it reads."""
        return self.reads.get(upstream, MAIN)

    def brings_up_to_date(self, version: str) -> frozenset[str]:
        """With its function of a version, of which state variables."""
        if version == self.version:
            return self.migrates
        return frozenset(variable for known, variable in self.previous_migrates if known == version)

    @classmethod
    def from_document(cls, said: Mapping[str, Any]) -> Node:
        state, watermark = said.get("state"), said.get("watermark")
        return cls(
            number=said["number"],
            kind=NodeKind(said["kind"]),
            name=said["name"],
            parallelism=said["parallelism"],
            upstream=tuple(said["upstream"]),
            reads={number: OutputName(output) for number, output in said.get("reads", ())},
            right=_optional(_second_input, said.get("right")),
            side_outputs={name: _columns(columns) for name, columns in said.get("side_outputs", {}).items()},
            version=said["version"],
            key=tuple(said["key"]),
            output=said["output"],
            key_types=_optional(tuple, said.get("key_types")),
            columns=_optional(_columns, said.get("columns")),
            form=said.get("form"),
            timeout=said.get("timeout"),
            per=said.get("per"),
            initial_state=_columns(said.get("initial_state", ())),
            watermark=_optional(_watermark, watermark),
            state=None if state is None else tuple(map(_variable, state)),
            source=said.get("source"),
            migrates=frozenset(said.get("migrates", ())),
            derived={
                upstream: DerivedInput(text, digest, _columns(columns))
                for upstream, text, digest, columns in said.get("derived", ())
            },
        )


@dataclass(frozen=True, slots=True)
class Topology:
    """`zone` is the session's time zone, `settings` what else of the session changes values, `realtime` the mode of
    the last start; `key_groups` is for keeping state by group of keys, which is not done yet."""

    nodes: tuple[Node, ...]
    zone: str | None = None
    settings: Mapping[str, str] | None = field(default=None)
    realtime: bool | None = None
    key_groups: int = 0

    def node(self, number: int) -> Node:
        return next(node for node in self.nodes if node.number == number)

    def instances(self, *kinds: NodeKind) -> list[Origin]:
        """Of all nodes of these kinds, in order."""
        return [
            Origin.of(node.number, instance)
            for node in self.nodes
            if node.kind in kinds
            for instance in range(node.parallelism)
        ]

    def all_upstream(self, number: int) -> frozenset[int]:
        """The nodes whose rows may come to a node, over whatever is in between."""
        found: set[int] = set()
        left = [*self.node(number).upstream]
        while left:
            node = left.pop()
            if node not in found:
                found.add(node)
                left += self.node(node).upstream
        return frozenset(found)

    def downstream(self, number: int) -> tuple[Node, ...]:
        """The nodes that read a node, each of which gets all of its rows."""
        return tuple(node for node in self.nodes if number in node.upstream)

    def receivers(self, number: int) -> list[Origin]:
        """By the number of the destination, the instance that it is."""
        return [
            Origin.of(reader.number, instance)
            for reader in self.downstream(number)
            for instance in range(reader.parallelism)
        ]

    def destination(self, number: int, receiver: Origin) -> int | None:
        """A node numbers its destinations through: the instances of one reader after those of another. None where the
        receiver does not read it."""
        before = 0
        for node in self.downstream(number):
            if node.number == receiver.node:
                return before + receiver.instance
            before += node.parallelism
        return None

    def receiver(self, number: int, destination: int) -> Origin | None:
        """The instance that is a destination of a node; None where there is no such destination."""
        for node in self.downstream(number):
            if destination < node.parallelism:
                return Origin.of(node.number, destination)
            destination -= node.parallelism
        return None

    def to_document(self) -> dict[str, Any]:
        """For a JSON file in the checkpoint."""
        return {
            "version": FORMAT_VERSION,
            "zone": self.zone,
            "settings": None if self.settings is None else dict(self.settings),
            "realtime": self.realtime,
            "key_groups": self.key_groups,
            "nodes": [node.to_document() for node in self.nodes],
        }

    @classmethod
    def from_document(cls, said: Mapping[str, Any]) -> Topology:
        """Raises CheckpointMismatch where it is of a version that this library does not know."""
        if said.get("version") not in FORMATS:
            raise CheckpointMismatch(
                f"the checkpoint was written in format version {said.get('version')}, this library reads "
                f"{', '.join(map(str, FORMATS))}",
                hint="Finish the query with the version of clonos that wrote it, or start from a new checkpoint",
            )
        return cls(
            nodes=tuple(map(Node.from_document, said["nodes"])),
            zone=said.get("zone"),
            settings=said.get("settings"),
            realtime=said.get("realtime"),
            key_groups=said.get("key_groups", 0),
        )


def _optional(make: Any, said: Any) -> Any:
    return None if said is None else make(said)


def _columns(said: Any) -> Columns:
    return tuple(Column(*one) for one in said)


def _watermark(said: Any) -> Watermark:
    return said[0], said[1]


def _second_input(said: Any) -> SecondInput:
    """Older documents do not say its watermark."""
    upstream, key, types, *watermark = said
    return SecondInput(
        tuple(upstream), tuple(key), tuple(types), _optional(_watermark, watermark[0] if watermark else None)
    )


def _variable(said: Mapping[str, Any]) -> StateVariable:
    return StateVariable(
        said["name"], said["kind"], _columns(said["columns"]), _columns(said["key"]), said["ttl"]
    )
