"""Lineage over several operators, against what each call was given and gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from clonos.protocol.archive.lineage import Derivation, backward, forward, given_as
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId, channel_origin
from clonos.protocol.topology import Node, NodeKind, Topology


class Calls:
    """Of a run that is known as a whole."""

    def __init__(self, program: Topology, calls: list[Derivation]) -> None:
        self.program = program
        self.calls = calls
        self.asked: list[RecordId] = []

    def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation]:
        self.asked += [RecordId(origin.channel, number) for number in numbers]
        for call in self.calls:
            if call.origin == origin and not numbers.isdisjoint(row.position for row in call.rows()):
                yield call

    def of_records(self, node: NodeId, records: frozenset[RecordId]) -> Iterator[Derivation]:
        for call in self.calls:
            if call.origin.node == node and not records.isdisjoint(call.inputs):
                yield call


@st.composite
def runs(draw: st.DrawFn) -> Calls:
    """A graph of up to five operators of two instances each, in front of it a source, and what they made of what. Each
    record goes to one instance of each reader, alone or with others in a call."""
    nodes = [Node(NodeId(1), NodeKind.SOURCE, "source", 0)]
    calls: list[Derivation] = []
    rows = {1: [RecordId(Origin.of(1, at % 2).channel, at) for at in range(draw(st.integers(0, 5)))]}
    for number in range(2, draw(st.integers(3, 7))):
        upstream = draw(st.sets(st.integers(1, number - 1), min_size=1, max_size=2))
        nodes.append(Node(NodeId(number), NodeKind.OPERATOR, f"o{number}", 2, tuple(sorted(upstream))))
        numbers, rows[number] = [1, 1], []
        left = [record for before in sorted(upstream) for record in rows[before]]
        while left:
            taken = draw(st.integers(1, len(left)))
            instance = draw(st.integers(0, 1))
            origin = Origin.of(number, instance)
            count = draw(st.integers(0, 2))
            first = OutputNumber(numbers[instance])
            call = Derivation(origin, Epoch(0), "record", first, count, tuple(left[:taken]))
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
    inputs = {record for call in calls if row in set(call.rows()) for record in call.inputs}
    return inputs.union(*(made_of(calls, record, ends) for record in inputs))


@settings(deadline=None)
@given(run=runs(), data=st.data())
def test_backward_and_forward_are_what_calls_were_given_and_gave(run: Calls, data: st.DataObject) -> None:
    every = sorted({row for call in run.calls for row in call.rows()})
    known = sorted({record for call in run.calls for record in call.inputs})
    ends = data.draw(st.sampled_from([None, *(NodeId(node.number) for node in run.program.nodes)]))

    def stops(node: NodeId) -> bool:
        return node == ends

    for row in every:
        found = {each for call in backward(run.program, run, [row], ends_at=stops) for each in call.inputs}
        assert found == made_of(run.calls, row, ends)
    for record in known:
        if channel_origin(record.channel).node == ends:
            continue
        out = list(forward(run.program, run, [record], ends_at=stops))
        assert len(out) == len({(call.origin, call.first) for call in out}), "each comes once"
        rows = {row for call in out for row in call.rows()}
        wanted = {row for row in every if record in made_of(run.calls, row, None)}
        if ends is None:
            assert rows == wanted
        else:
            assert rows <= wanted and rows >= {
                row for row in wanted if record in made_of(run.calls, row, ends)
            }


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
        def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation]:
            raise LookupError(f"{origin} {sorted(numbers)}")

    operator = Node(NodeId(2), NodeKind.OPERATOR, "one", 1, (1,))
    run = Nothing(Topology((Node(NodeId(1), NodeKind.SOURCE, "source", 0), operator)), [])
    with pytest.raises(LookupError, match=f"2/0 \\[{number}\\]"):
        list(backward(run.program, run, [RecordId(Origin.of(2, 0).channel, number)]))
