"""Lineage over several operators, against what each call was given and gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from clonos.protocol.archive.input_set import InputSet, Kept
from clonos.protocol.archive.lineage import (
    Derivation,
    Lost,
    backward,
    forward,
    given_as,
    leads_to,
    on_the_way,
)
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId, channel_origin
from clonos.protocol.topology import Node, NodeKind, Topology


class Calls:
    """Of a run that is known as a whole."""

    def __init__(self, program: Topology, calls: list[Derivation]) -> None:
        self.program = program
        self.calls = calls
        self.asked: list[RecordId] = []

    def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation | Lost]:
        self.asked += [RecordId(origin.channel, number) for number in numbers]
        for call in self.calls:
            if call.origin == origin and not numbers.isdisjoint(row.position for row in call.rows()):
                yield call

    def of_records(self, node: NodeId, records: frozenset[RecordId]) -> Iterator[Derivation]:
        for call in self.calls:
            if call.origin.node == node and not records.isdisjoint(of(call)):
                kept = [(part, [record for record in part if record in records]) for part in call.kept]
                yield replace(
                    call,
                    kept=tuple(kept_of(found, is_bound=part.is_bound) for part, found in kept if found),
                )


def kept_of(records: Iterable[RecordId], *, is_bound: bool) -> Kept:
    found = InputSet()
    for record in records:
        found.add(record)
    return found.all(is_bound=is_bound)


def of(call: Derivation) -> frozenset[RecordId]:
    return frozenset([*call.exactly_of(), *call.at_most_of()])


@st.composite
def runs(draw: st.DrawFn) -> Calls:
    """A graph of up to five operators of two instances each, in front of it a source, and what they made of what. Each
    record goes to one instance of each reader, alone or with others in a call, whose rows may also be of some that
    calls before were given."""
    nodes = [Node(NodeId(1), NodeKind.SOURCE, "source", 0)]
    calls: list[Derivation] = []
    rows = {1: [RecordId(Origin.of(1, at % 2).channel, at) for at in range(draw(st.integers(0, 5)))]}
    for number in range(2, draw(st.integers(3, 7))):
        upstream = draw(st.sets(st.integers(1, number - 1), min_size=1, max_size=2))
        nodes.append(Node(NodeId(number), NodeKind.OPERATOR, f"o{number}", 2, tuple(sorted(upstream))))
        numbers, rows[number] = [1, 1], []
        left = [record for before in sorted(upstream) for record in rows[before]]
        came = list[RecordId]()
        while left:
            taken = draw(st.integers(1, len(left)))
            instance = draw(st.integers(0, 1))
            origin = Origin.of(number, instance)
            count = draw(st.integers(0, 2))
            first = OutputNumber(numbers[instance])
            kept = tuple(
                kept_of(sorted(draw(st.sets(st.sampled_from(came)))), is_bound=draw(st.booleans()))
                for _ in range(draw(st.integers(0, 2)) if came else 0)
            )
            kept = tuple(part for part in kept if len(part))
            call = Derivation(origin, Epoch(0), "record", first, count, tuple(left[:taken]), (), kept)
            came += left[:taken]
            left = left[taken:]
            numbers[instance] += count
            rows[number] += call.rows()
            if count:
                calls.append(call)
    return Calls(Topology(tuple(nodes)), calls)


def made_of(calls: list[Derivation], row: RecordId, ends: NodeId | None) -> set[RecordId]:
    """One record after the other."""
    if channel_origin(row.channel).node == ends:
        return set()
    inputs = {record for call in calls if row in set(call.rows()) for record in of(call)}
    return inputs.union(*(made_of(calls, record, ends) for record in inputs))


@settings(deadline=None)
@given(run=runs(), data=st.data())
def test_backward_and_forward_are_what_calls_were_given_and_gave(run: Calls, data: st.DataObject) -> None:
    every = sorted({row for call in run.calls for row in call.rows()})
    known = sorted({record for call in run.calls for record in of(call)})
    ends = data.draw(st.sampled_from([None, *(NodeId(node.number) for node in run.program.nodes)]))

    def stops(node: NodeId) -> bool:
        return node == ends

    for row in every:
        found = {each for call in told(backward(run.program, run, [row], ends_at=stops)) for each in of(call)}
        assert found == made_of(run.calls, row, ends)
    for record in known:
        if channel_origin(record.channel).node == ends:
            continue
        out = told(forward(run.program, run, [record], ends_at=stops))
        assert len(out) == len({(call.origin, call.first) for call in out}), "each comes once"
        rows = {row for call in out for row in call.rows()}
        wanted = {row for row in every if record in made_of(run.calls, row, None)}
        if ends is None:
            assert rows == wanted
        else:
            assert rows <= wanted and rows >= {
                row for row in wanted if record in made_of(run.calls, row, ends)
            }
        whole = {(call.origin, call.first): call for call in run.calls}
        followed = {record, *rows} - {row for row in rows if channel_origin(row.channel).node == ends}
        for call in out:
            assert of(call) & followed == of(whole[call.origin, call.first]) & followed, (
                "by whatever way it came"
            )


def told(found: Iterable[Derivation | Lost]) -> list[Derivation]:
    """Nothing is lacking."""
    derivations = list[Derivation]()
    for each in found:
        assert isinstance(each, Derivation)
        derivations.append(each)
    return derivations


@pytest.mark.parametrize("longer", [1, 2, 5])
def test_a_row_is_told_with_what_came_by_every_way(longer: int) -> None:
    """A row of a join is of a row, and of what others made of that, however many they are."""
    source = Node(NodeId(1), NodeKind.SOURCE, "source", 0)
    nodes = [Node(NodeId(at), NodeKind.OPERATOR, f"o{at}", 1, (at - 1,)) for at in range(2, 3 + longer)]
    last = 3 + longer
    pair = Node(NodeId(last), NodeKind.OPERATOR, "pair", 1, (2, last - 1))
    a = RecordId(Origin.of(1, 0).channel, 7)
    calls = list[Derivation]()
    for node in nodes:
        of_one = (next(calls[-1].rows()) if calls else a,)
        calls.append(Derivation(Origin.of(node.number, 0), Epoch(0), "record", OutputNumber(1), 1, of_one))
    base, other = next(calls[0].rows()), next(calls[-1].rows())
    for first, given_to_it, before in ((1, other, base), (2, base, other)):
        kept = (kept_of([before], is_bound=False),)
        origin, number = Origin.of(last, 0), OutputNumber(first)
        calls.append(Derivation(origin, Epoch(0), "record", number, 1, (given_to_it,), (), kept))
    run = Calls(Topology((source, *nodes, pair)), calls)
    both = told(forward(run.program, run, [a]))[-2:]
    assert [set(call.exactly_of()) for call in both] == [{base, other}, {base, other}]


def test_ways_that_part_and_meet_again_are_gone_once() -> None:
    """Thirty times, so that it ends only where none is gone twice."""
    nodes = [Node(NodeId(1), NodeKind.SOURCE, "source", 0)]
    for at in range(2, 62, 2):
        before = (at - 2, at - 1) if at > 2 else (1,)
        nodes += [Node(NodeId(at + one), NodeKind.OPERATOR, f"o{at + one}", 1, before) for one in (0, 1)]
    program = Topology(tuple(nodes))
    calls = list[Derivation]()
    rows = {1: (RecordId(Origin.of(1, 0).channel, 1),)}
    for node in nodes[1:]:
        made_of_these = tuple(rows[before][0] for before in node.upstream)
        call = Derivation(Origin.of(node.number, 0), Epoch(0), "bundle", OutputNumber(1), 1, made_of_these)
        calls.append(call)
        rows[node.number] = (*call.rows(),)
    run = Calls(program, calls)
    assert leads_to(program, 1, 61) and not leads_to(program, 60, 61) and not leads_to(program, 61, 61)
    assert on_the_way(program, 61, None) == [61, *range(59, 1, -1)]
    assert on_the_way(program, 61, 57) == [61, 59, 58]
    assert len(told(backward(program, run, rows[61]))) == 59
    assert len(told(forward(program, run, rows[1]))) == 60


def test_what_is_lacking_is_told_beside_what_is_known() -> None:
    first, second = Origin.of(2, 0), Origin.of(3, 0)
    one = Node(NodeId(2), NodeKind.OPERATOR, "one", 1, (1,))
    two = replace(one, number=NodeId(3), name="two", upstream=(2,))
    program = Topology((Node(NodeId(1), NodeKind.SOURCE, "source", 0), one, two))
    call = Derivation(first, Epoch(1), "record", OutputNumber(2), 1, (RecordId(Origin.of(1, 0).channel, 4),))
    of_both = (RecordId(first.channel, 1), *call.rows())
    both = Derivation(second, Epoch(1), "bundle", OutputNumber(1), 1, of_both)
    lost = Lost((RecordId(first.channel, 1),), "its epoch is not in the archive any more")

    class Cut(Calls):
        def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation | Lost]:
            if origin == first and 1 in numbers:
                yield lost
            yield from super().of_rows(origin, numbers)

    run = Cut(program, [call, both])
    assert list(backward(program, run, both.rows())) == [both, lost, call]
    assert list(forward(program, run, lost.records)) == [lost, both], "its other forms are not known"


def test_a_record_is_asked_for_once_where_ways_meet() -> None:
    first, second = Origin.of(2, 0), Origin.of(3, 0)
    a = RecordId(Origin.of(1, 0).channel, 4)
    source = Node(NodeId(1), NodeKind.SOURCE, "source", 0)
    one = Node(NodeId(2), NodeKind.OPERATOR, "one", 1, (1,))
    two = replace(one, number=NodeId(3), name="two", upstream=(2,))
    call = Derivation(first, Epoch(0), "record", OutputNumber(1), 2, (a,))
    both = Derivation(second, Epoch(0), "bundle", OutputNumber(1), 1, tuple(call.rows()))
    run = Calls(Topology((source, one, two)), [call, both])
    assert list(backward(run.program, run, both.rows())) == [both, call]
    assert sorted(run.asked) == sorted([*call.rows(), *both.rows()])
    assert list(forward(run.program, run, [a])) == [call, both]


@pytest.mark.parametrize(
    ("forms", "count", "given"),
    [
        (b"\3\2", 5, (0, 0, 0, 3, 3)),
        (b"\1\2\1", 4, (0, 1, 1, 3)),
        (b"", 3, (0, 1, 2)),
        (b"", 0, ()),
    ],
)
def test_forms_of_one_row_stand_together(forms: bytes, count: int, given: tuple[int, ...]) -> None:
    assert given_as(forms, count) == given


def test_a_record_goes_where_any_form_of_it_goes() -> None:
    first, second = Origin.of(2, 0), Origin.of(3, 0)
    one = Node(NodeId(2), NodeKind.OPERATOR, "one", 1, (1,))
    two = replace(one, number=NodeId(3), name="two", upstream=(2,))
    call = Derivation(first, Epoch(0), "record", OutputNumber(1), 4, (), (0, 0, 2, 2))
    reads = Derivation(second, Epoch(0), "record", OutputNumber(1), 1, (RecordId(first.channel, 2),))
    run = Calls(Topology((Node(NodeId(1), NodeKind.SOURCE, "source", 0), one, two)), [call, reads])
    assert list(forward(run.program, run, [RecordId(first.channel, 1)])) == [reads]
    assert list(forward(run.program, run, [RecordId(first.channel, 3)])) == []


@pytest.mark.parametrize("number", [3, 9])
def test_what_is_lacking_is_told(number: int) -> None:
    class Nothing(Calls):
        def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation | Lost]:
            raise LookupError(f"{origin} {sorted(numbers)}")

    operator = Node(NodeId(2), NodeKind.OPERATOR, "one", 1, (1,))
    run = Nothing(Topology((Node(NodeId(1), NodeKind.SOURCE, "source", 0), operator)), [])
    with pytest.raises(LookupError, match=f"2/0 \\[{number}\\]"):
        list(backward(run.program, run, [RecordId(Origin.of(2, 0).channel, number)]))
