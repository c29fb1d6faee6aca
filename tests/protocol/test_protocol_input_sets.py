"""Input sets, against plain sets that are copied for every row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from clonos.protocol.archive.input_set import InputSet, Kept
from clonos.protocol.archive.input_sets import GivenRecord, InputSets, MadeOf
from clonos.protocol.archive.lineage import Derivation, backward
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId
from clonos.protocol.topology import Node, NodeKind, Topology

CHANNEL = Origin.of(1, 0).channel
KEYS = (b"a", b"b")


def record(number: int) -> RecordId:
    return RecordId(CHANNEL, number)


@dataclass
class Model:
    """What a window of each key and a list of each key have, the state of its function, and its timer."""

    windows: dict[bytes, set[int]] = field(default_factory=dict)
    lists: dict[bytes, list[int]] = field(default_factory=dict)
    states: dict[bytes, set[int]] = field(default_factory=dict)
    timers: dict[bytes, set[int]] = field(default_factory=dict)  # the record that each was set for
    bounds: dict[bytes, set[int]] = field(default_factory=dict)  # and what the state was made of then


@dataclass(frozen=True)
class Step:
    what: str
    key: bytes
    element: int = 0


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            ["window", "end", "append", "read", "drop", "state", "look", "clear", "set", "cancel", "fire"]
        ),
        st.sampled_from(KEYS),
        st.integers(0, 3),
    ),
    max_size=40,
)
Row = tuple[set[int], set[int]]
"""Exactly of these, and at most of these."""


def run(sets: InputSets | None, model: Model, number: int, step: Step) -> tuple[Row, list[MadeOf]]:
    """One call, with a record unless a timer fires. What its row is of by the model, and by the input sets, if they
    look on."""
    key, fires = step.key, step.what == "fire" and step.key in model.timers
    timer, window, waits = (7, key, "", True), (key + b"-windows", 1), (key + b"-list", "left")
    exact, bound = (set() if fires else {number}), {*model.states.get(key, ())}
    had, made = key in model.states, list[Any]()
    if sets is not None:
        sets.begin_call(() if fires else [GivenRecord(record(number), key)], [timer] if fires else ())
        sets.state_was(key, is_there=had)
        sets.rows_go_to(made)
    elements = model.lists.get(key, [])
    at = step.element % len(elements) if elements else 0
    if fires:
        exact |= model.timers.pop(key)
        bound |= model.bounds.pop(key)
    elif step.what == "window":
        if sets is not None:
            if key not in model.windows:
                sets.holds(window, 0)
            sets.adds(window)
        model.windows.setdefault(key, set()).add(number)
    elif step.what == "end" and key in model.windows:
        exact |= model.windows.pop(key)
        if sets is not None:
            sets.rows_are_of(window)
            sets.leaves(window, ())
    elif step.what in ("append", "read", "drop"):
        if sets is not None:
            sets.holds(waits, len(elements))
        if step.what == "append":
            model.lists[key] = [*elements, number]
            if sets is not None:
                sets.adds(waits)
        elif elements and step.what == "read":
            exact.add(elements[at])
            if sets is not None:
                sets.rows_are_of(waits, at)
        elif elements:
            left = [index for index in range(len(elements)) if index != at]
            model.lists[key] = [elements[index] for index in left]
            if sets is not None:
                sets.leaves(waits, left)
    elif step.what == "set":
        if sets is not None:
            sets.timer_set(timer)
        if key not in model.timers:
            model.timers[key], model.bounds[key] = {number}, {*bound}
    elif step.what == "cancel":
        model.timers.pop(key, None)
        if sets is not None:
            sets.timer_cancelled(timer)
    found = [] if sets is None else sets.end_call(1)
    if step.what == "state":
        model.states.setdefault(key, set()).add(number)
    elif step.what == "clear":
        model.states.pop(key, None)
    if sets is not None:
        sets.state_is(key, is_there=key in model.states, has_changed=step.what == "state")
    return (exact, bound), found


def numbers(parts: list[Kept]) -> set[int]:
    return {each.position for part in parts for each in part}


@settings(deadline=None, max_examples=300)
@given(steps=STEPS, begun=st.integers(0, 20), through_state=st.booleans())
def test_rows_are_of_what_was_kept_and_what_is_not_known_is_told(
    steps: list[Step], begun: int, through_state: bool
) -> None:
    """The input sets look on from a state on."""
    model, sets = Model(), InputSets(through_state=through_state)
    for at, step in enumerate(steps):
        if at == begun and begun:
            sets.begin_at_state([(7, key, "", True) for key in model.timers])
        (exact, bound), made = run(None if at < begun else sets, model, at, step)
        if at < begun:
            continue
        (one,) = made
        assert (one.first, one.count) == (0, 1)
        found = {each.position for each in one.inputs} | numbers([p for p in one.kept if not p.is_bound])
        at_most = numbers([part for part in one.kept if part.is_bound])
        wanted = {number for number in exact if number >= begun}
        assert found == wanted
        assert at_most <= bound
        is_whole = found == exact and (not through_state or at_most | found == bound | exact)
        assert one.lacks or is_whole, "what is not known is said"
        if begun == 0:
            assert not one.lacks
        if through_state:
            assert at_most >= {number for number in bound if number >= begun} - exact
        else:
            assert not at_most


def test_rows_of_a_call_are_of_other_records_each() -> None:
    sets, made = InputSets(), list[Any]()
    for number in range(3):
        sets.begin_call([GivenRecord(record(number), b"a")])
        sets.holds((b"a", "left"), number)
        sets.adds((b"a", "left"))
        sets.end_call(0)
    sets.begin_call([GivenRecord(record(9), b"a")])
    sets.rows_go_to(made)
    made.append("of the record alone")
    for element in (2, 0):
        sets.rows_are_of((b"a", "left"), element)
        made.append(element)
    sets.becomes([1, 2, 0])  # what expressions behind the operator have left of them
    alone, two = sets.end_call(3)
    assert (alone.first, alone.count, alone.kept) == (0, 1, ())
    assert (two.first, two.count, numbers([*two.kept])) == (1, 2, {2})
    assert alone.inputs == two.inputs == (record(9),)


def test_a_function_that_is_called_twice_in_a_call_may_have_kept_what_it_was_given_first() -> None:
    """As one over windows, of which two end together."""
    sets, made, windows = InputSets(through_state=True), list[Any](), [(b"a-windows", at) for at in (1, 2)]
    for number, window in enumerate(windows):
        sets.begin_call([GivenRecord(record(number), b"a")])
        sets.holds(window, 0)
        sets.adds(window)
        sets.end_call(0)
    sets.begin_call(timers=[(1, b"a", "ends", True)])
    sets.state_was(b"a", is_there=False)
    sets.rows_go_to(made)
    for window in windows:
        sets.rows_are_of(window)
        made.append(window)
    first, second = sets.end_call(2)
    sets.state_is(b"a", is_there=True, has_changed=True)
    assert [numbers([part]) for part in first.kept] == [{0}]
    assert [(numbers([part]), part.is_bound) for part in second.kept] == [({1}, False), ({0}, True)]
    sets.begin_call([GivenRecord(record(9), b"a")])
    sets.state_was(b"a", is_there=True)
    (later,) = sets.end_call(1)
    assert numbers([*later.kept]) == {0, 1}


def test_a_bundle_is_told_of_by_key_and_late_records_are_none() -> None:
    sets, made = InputSets(), list[Any]()
    sets.begin_call([GivenRecord(record(at), KEYS[at % 2]) for at in range(6)])
    sets.passes_over([3])
    sets.rows_go_to(made)
    for key in KEYS:
        sets.rows_are_of_key(key)
        made.append(key)
    assert [one.inputs for one in sets.end_call(2)] == [
        tuple(map(record, (0, 2, 4))),
        tuple(map(record, (1, 5))),
    ]


def test_what_waits_for_the_end_of_the_epoch_is_of_its_key() -> None:
    sets = InputSets(through_state=True)
    for at in range(4):
        sets.begin_call([GivenRecord(record(at), KEYS[at % 2])])
        sets.gathers()
        assert sets.end_call(0) == []
    for epoch in range(2):
        made = list[Any]()
        sets.begin_call()
        assert sets.gathered_keys == ([] if epoch else [*KEYS])
        for key in KEYS:
            sets.state_was(key, is_there=bool(epoch))
        sets.rows_go_to(made)
        sets.rows_are_of_key(b"b")
        made.append("b")
        (one,) = sets.end_call(1)
        for key in KEYS:
            sets.state_is(key, is_there=True, has_changed=True)
        exact = numbers([part for part in one.kept if not part.is_bound])
        assert exact == (set() if epoch else {1, 3})
        assert numbers([part for part in one.kept if part.is_bound]) == ({1, 3} if epoch else set())


def test_sessions_that_become_one() -> None:
    sets = InputSets()
    for at in range(4):
        sets.begin_call([GivenRecord(record(at), b"a")])
        if at < 2:
            sets.holds((b"a", at), 0)
        sets.adds((b"a", at % 2))
        sets.end_call(0)
    sets.begin_call(timers=[(1, b"a", "ends", True)])
    sets.merges((b"a", 0), (b"a", 1))
    sets.rows_are_of((b"a", 0))
    (one,) = sets.end_call(1)
    assert numbers([*one.kept]) == {0, 1, 2, 3} and not one.lacks


def test_of_sessions_that_became_one_nothing_is_left_behind_it() -> None:
    sets = InputSets(is_followed=lambda each: True)
    for at in range(2):
        sets.begin_call([GivenRecord(record(at), b"a")])
        sets.holds((b"a", at), 0)
        sets.adds((b"a", at))
    sets.merges((b"a", 0), (b"a", 1))
    assert sets.still_follows
    sets.leaves((b"a", 0), ())
    assert not sets.still_follows


def test_only_records_that_are_looked_for_are_followed_until_none_is_kept() -> None:
    sets = InputSets(is_followed=lambda each: each.position == 1)
    for at in range(3):
        assert sets.still_follows == (at > 1)
        sets.begin_call([GivenRecord(record(at), b"a")])
        sets.holds((b"a", "left"), at)
        sets.adds((b"a", "left"))
        sets.end_call(0)
    sets.begin_call()
    sets.rows_are_of((b"a", "left"))
    (one,) = sets.end_call(1)
    (part,) = one.kept
    followed = part.followed()
    assert followed is not None and [*followed] == [record(1)]
    sets.leaves((b"a", "left"), [0, 2])
    assert not sets.still_follows


@pytest.mark.parametrize("rows", [1, 400])
def test_records_that_rows_have_in_common_are_followed_once(rows: int) -> None:
    """Each row is of all records that were kept before it, as those of a running aggregate are."""
    reads: list[int] = []

    class Counting(InputSet):
        def records(self, begin: int, end: int) -> Any:
            reads.append(max(0, end - begin))
            return super().records(begin, end)

    first, second = Origin.of(2, 0), Origin.of(3, 0)
    grows = Counting()
    inner = []
    for number in range(1, rows + 1):
        inner.append(Derivation(first, Epoch(0), "bundle", OutputNumber(number), 1, (), (0,), (grows.all(),)))
        grows.add(record(number))
    outer = Derivation(
        second,
        Epoch(0),
        "bundle",
        OutputNumber(1),
        1,
        tuple(RecordId(first.channel, at) for at in range(1, rows + 1)),
    )

    class Found:
        def of_rows(self, origin: Origin, numbers: frozenset[int]) -> list[Derivation]:
            return [outer] if origin == second else inner

        def of_records(self, node: NodeId, records: frozenset[RecordId]) -> list[Derivation]:
            raise AssertionError

    program = Topology(
        (
            Node(NodeId(1), NodeKind.SOURCE, "source", 0),
            Node(NodeId(2), NodeKind.OPERATOR, "first", 1, (1,)),
            Node(NodeId(3), NodeKind.OPERATOR, "second", 1, (2,)),
        )
    )
    found = list(backward(program, Found(), outer.rows()))
    assert found == [outer, *inner]
    assert sum(reads) < 2 * rows
