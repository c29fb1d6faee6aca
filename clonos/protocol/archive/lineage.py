"""Lineage of records: which records a row was made of, and which rows a record went into, across operators.

An operator's part of it is its *derivations*: for each call of its function, the rows that it gave, the records that it
was given, and those that state had kept of which the rows are made (`protocol.archive.input_sets`). That is exact
where the function is given one record at a time, and by call where it is given several.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from clonos.protocol.archive.input_set import InputSet, Kept
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId, channel_origin
from clonos.protocol.topology import NodeKind, Topology


@dataclass(frozen=True, slots=True)
class Derivation:
    """What one call gave: `count` rows of the instance `origin`, numbered from `first` on, of these records. A timer
    and the end of an epoch are given none. Where rows of a call are made of other records each, it is several."""

    origin: Origin
    epoch: Epoch
    form: str  # record, bundle, timer, end of the epoch
    first: OutputNumber
    count: int
    inputs: tuple[RecordId, ...]
    # Of each row, which one it is another form of (`given_as`); () where each is itself
    given_as: tuple[int, ...] = ()
    kept: tuple[Kept, ...] = ()  # records that came before, of what state had kept of them
    kept_before: Epoch | None = None  # what was kept before this epoch is part of it, and not known

    def other_forms(self, row: RecordId) -> Iterator[RecordId]:
        """What else of the call is the same row: as the function gave it, and behind expressions."""
        forms = self.given_as or tuple(range(self.count))
        own = forms[row.position - self.first]
        return (
            RecordId(self.origin.channel, self.first + at) for at, form in enumerate(forms) if form == own
        )

    def exactly_of(self) -> list[RecordId]:
        """What each of the rows is made of, each record once: what the call was given, then what was kept."""
        exact = (part for part in self.kept if not part.is_bound)
        return [*dict.fromkeys(chain(self.inputs, *exact))]

    def at_most_of(self) -> list[RecordId]:
        """What they may be made of besides, over state that a user's function has kept. They are of nothing else."""
        bounds = [part for part in self.kept if part.is_bound]
        if not bounds:
            return []
        exact = frozenset(self.exactly_of())
        return [record for record in dict.fromkeys(chain(*bounds)) if record not in exact]

    def rows(self) -> Iterator[RecordId]:
        """Those that it gave."""
        return (RecordId(self.origin.channel, self.first + at) for at in range(self.count))


@dataclass(frozen=True, slots=True)
class Lost:
    """Records of one instance of which it cannot be said what they are made of, or what became of them; and why."""

    records: tuple[RecordId, ...]
    why: str


class Derivations(Protocol):
    """Where derivations are found. What is lacking is told beside what is known."""

    def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterable[Derivation | Lost]:
        """The calls of an instance that gave these rows."""

    def of_records(self, node: NodeId, records: frozenset[RecordId]) -> Iterable[Derivation | Lost]:
        """The calls of an operator's instances that gave rows of these records, each once. `kept` has of what state had
        kept only these."""


def backward(
    program: Topology,
    found: Derivations,
    rows: Iterable[RecordId],
    *,
    ends_at: Callable[[NodeId], bool] = lambda node: False,
) -> Iterator[Derivation | Lost]:
    """What the rows were made of, what that was made of, and so on to the sources, or to the rows of other operators,
    at which it ends. Each derivation comes once, those of the last operators first."""
    pending = _Pending(rows)
    while pending:
        origin, records = pending.take_last()
        node = program.node(origin.node)
        if node.kind is not NodeKind.OPERATOR or ends_at(origin.node):
            continue
        wanted = frozenset(record.position for record in records)
        for each in found.of_rows(origin, wanted):
            yield each
            if isinstance(each, Derivation):
                pending.add(each.inputs)
                for part in each.kept:
                    pending.add_kept(part)


def forward(
    program: Topology,
    found: Derivations,
    records: Iterable[RecordId],
    *,
    ends_at: Callable[[NodeId], bool] = lambda node: False,
) -> Iterator[Derivation | Lost]:
    """Which rows were made of the records, in whatever form readers got them, which of these, and so on to the last
    operators, or to others at which it ends. Each derivation comes once, those of the first operators first.

    An operator is asked when all in front of it have been, for all records together that have come to it by then: by
    whatever ways they come, a row that is of several of them is told with all.
    """
    followed: dict[int, set[RecordId]] = defaultdict(set)  # by the node that they are of
    for record in frozenset(records):
        origin = channel_origin(record.channel)
        followed[origin.node].add(record)
        if program.node(origin.node).kind is NodeKind.OPERATOR:
            for each in found.of_rows(origin, frozenset([record.position])):
                if isinstance(each, Derivation):
                    followed[origin.node].update(each.other_forms(record))
                else:
                    yield each
    # Each has a greater number than what it reads
    for reader in sorted(program.nodes, key=lambda node: node.number):
        if reader.kind is not NodeKind.OPERATOR:
            continue
        sent = [followed[node] for node in reader.upstream if not ends_at(NodeId(node))]
        if not any(sent):
            continue
        for each in found.of_records(NodeId(reader.number), frozenset().union(*sent)):
            yield each
            if isinstance(each, Derivation):
                followed[reader.number].update(each.rows())


def leads_to(program: Topology, node: int, end: int) -> bool:
    """Whether rows of a node go into rows of another one, over whatever is in between."""
    return node in program.all_upstream(end)


def on_the_way(program: Topology, start: int, end: int | None) -> list[NodeId]:
    """The operators whose rows a row of `start` may be made of, behind the node `end`, or behind the sources, and it
    itself: the last ones first."""
    before = {start} | program.all_upstream(start)
    return [
        NodeId(number)
        for number in sorted(before, reverse=True)
        if program.node(number).kind is NodeKind.OPERATOR and (end is None or leads_to(program, end, number))
    ]


def any_between(numbers: Sequence[int], first: int, count: int) -> bool:
    """Whether any of the numbers, which ascend, is one of so many from the first on."""
    at = bisect_left(numbers, first)
    return at < len(numbers) and numbers[at] < first + count


def given_as(forms: bytes, count: int) -> tuple[int, ...]:
    """Of so many rows of a call, which one each is another form of. `forms` says how many are forms of one row, one
    behind the other (`engine.given_rows`); it is empty where each is itself."""
    if not forms:
        return tuple(range(count))
    found: list[int] = []
    for size in forms:
        found += [len(found)] * size
    return tuple(found)


class _Pending:
    """Records that are to be looked at, by the instance that they are of; each is, once."""

    def __init__(self, begun: Iterable[RecordId]) -> None:
        self._seen: set[RecordId] = set()
        self._by_origin: dict[Origin, set[RecordId]] = {}
        self._reached: dict[InputSet, int] = {}  # rows of one that grows have their beginning in common
        self.add(begun)

    def __bool__(self) -> bool:
        return bool(self._by_origin)

    def add(self, records: Iterable[RecordId]) -> None:
        for record in records:
            if record not in self._seen:
                self._seen.add(record)
                self._by_origin.setdefault(channel_origin(record.channel), set()).add(record)

    def add_kept(self, part: Kept) -> None:
        reached = self._reached.get(part.of, 0)
        self.add(part.behind(reached) if part.begin <= reached else part)
        if part.begin <= reached < part.end:
            self._reached[part.of] = part.end

    def take_last(self) -> tuple[Origin, set[RecordId]]:
        """All of one instance of the last operator, since they are numbered from the sources."""
        origin = max(self._by_origin)
        return origin, self._by_origin.pop(origin)
