"""Calls that made rows are asked for together, and what cannot be repeated is lost alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from clonos.archive import call_graph
from clonos.archive.call_graph import CallGraph, Limits
from clonos.archive.tracing import CallsTracer, RowIsMade, TracedCall
from clonos.errors import UserFunctionError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.lineage import Derivation, Lost
from clonos.protocol.archive.step_lineage import CallForm
from clonos.protocol.ids import Epoch, Origin, OutputNumber, RecordId

ORIGIN = Origin.of(2, 0)
EPOCH = Epoch(1)


@dataclass(frozen=True)
class FoundCall:
    """With one row."""

    call: TracedCall


def traced(first: int, rows: int = 1) -> TracedCall:
    return TracedCall("record", 0, OutputNumber(first), outputs=[(each,) for each in range(rows)])


def test_rows_behind_what_cannot_be_repeated_are_looked_for_from_a_state_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fifth row cannot be repeated, and there is a state in front of the seventh."""
    asked: list[list[int]] = []

    def calls(instance: Any, epoch: Epoch, numbers: list[int]) -> tuple[list[FoundCall], Lacking | None]:
        asked.append(numbers)
        reached = [each for each in numbers if each < 5 or numbers[0] >= 7]
        why = None if len(reached) == len(numbers) else Lacking("it says something else")
        return [FoundCall(traced(each)) for each in reached], why

    monkeypatch.setattr(call_graph, "_calls", calls)
    query: Any = None
    graph = CallGraph(query, Limits())
    instance: Any = SimpleNamespace(origin=ORIGIN)
    lost = graph._find_in(instance, EPOCH, list(range(1, 9)))
    found = {each.call.first for each in graph._calls[ORIGIN]}
    assert found == {1, 2, 3, 4, 7, 8} and lost[5] == lost[6] == Lacking("it says something else")
    assert asked == [[*range(1, 9)], [5, 6, 7, 8], [7, 8]]


def derivation(row: int) -> Derivation:
    return Derivation(ORIGIN, EPOCH, CallForm.RECORD, OutputNumber(row), 1, (), (0,), (), None)


@pytest.mark.parametrize("raises", [False, True])
def test_what_rows_are_made_of_is_asked_for_together_and_of_those_in_front_of_an_error_alone(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    asked: list[list[int]] = []

    class Fails:
        """At the sixth row."""

        def __init__(self, query: Any, keeps_rows: bool) -> None:
            pass

        def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation | Lost]:
            asked.append(sorted(numbers))
            if max(numbers) < 6:
                yield from map(derivation, sorted(numbers))
            elif raises:
                raise UserFunctionError("no card 4711")
            else:
                yield Lost(tuple(RecordId(origin.channel, each) for each in numbers), "it is gone")

    monkeypatch.setattr(call_graph, "ArchivedDerivations", Fails)
    query: Any = None
    rows = [RecordId(ORIGIN.channel, each) for each in range(1, 9)]
    found = call_graph._derivations(query, ORIGIN, rows)
    assert [each for each in rows if isinstance(found[each], Derivation)] == rows[:5]
    for row in rows[5:]:
        why = found[row]
        assert isinstance(why, Lacking) and why.has_raised is raises
    assert asked == [[*range(1, 9)], [1, 2, 3, 4], [5, 6, 7, 8], [5, 6], [5], [6]]
    assert [*call_graph._derivations(query, ORIGIN, rows[:5])] == rows[:5]
    assert asked[-1] == [1, 2, 3, 4, 5], "all at once, where nothing is lacking"


def test_calls_are_found_in_one_repetition_that_ends_behind_the_last_of_them() -> None:
    tracer = CallsTracer([7, 2])
    made = 0

    def step(outputs: int, calls: int = 1) -> None:
        nonlocal made
        before: Any = OutputNumber(made)
        tracer.made = lambda: before
        given: Any = SimpleNamespace(outputs=outputs)
        tracer.step_begins(given)
        if tracer.is_on:
            for _ in range(calls):
                tracer.end(tracer.begin("bundle"), [()] * (outputs // calls))
        made += outputs

    step(1)
    assert not tracer.is_on
    step(3)
    assert tracer.is_on and tracer.found == [], "the step may still say something else than then"
    step(2)
    assert not tracer.is_on and [call.first for _, call in tracer.found] == [2]
    step(4, calls=2)
    with pytest.raises(RowIsMade):
        step(1)
    assert [call.first for _, call in tracer.found] == [2, 7]
