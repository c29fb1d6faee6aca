"""Which fields of kept state continue others; what an instance has kept is read with the fields that it was kept by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_protocol_binding import KEPT, QUERY, with_node
from test_protocol_upgrade import clean, seen

from clonos.errors import CheckpointMismatch
from clonos.protocol.topology import Column
from clonos.protocol.versions.state_evolution import How, evolution
from clonos.protocol.versions.upgrade import History, take_over

N, X = Column("n", "int32"), Column("x", "decimal128(10, 2)")


def wider(kind: str, of: Column = N) -> Column:
    return of._replace(type=kind)


@pytest.mark.parametrize(
    ("before", "after", "how", "says"),
    [
        ((N, X), (N, X, Column("more", "string")), How.AS_KEPT, "has more columns: more string"),
        ((N, X), (wider("int64"), X), How.AS_KEPT, "has 'n' as int64, which may hold more than int32"),
        ((N, X), (wider("double"), X), How.AS_KEPT, "double"),
        ((wider("float"),), (wider("double"),), How.AS_KEPT, "double"),
        ((N, X), (N, wider("decimal128(12, 3)", X)), How.AS_KEPT, "decimal128"),
        ((N._replace(nullable=False),), (N,), How.AS_KEPT, ""),
        ((N, X), (X, N), How.BY_NAME, "the order x, n; it was n, x"),
        ((N, X), (X,), How.BY_NAME, "lacks 'n'"),
        ((N, X), (N,), How.BY_NAME, "lacks 'x'"),
        (
            (N, X),
            (Column("more", "string"), N, wider("decimal128(11, 2)", X)),
            How.BY_NAME,
            "the order more, n",
        ),
        ((N, X), (wider("int16"), X), How.NOT, "as int16; it was int32"),
        ((wider("double"),), (wider("float"),), How.NOT, "as float; it was double"),
        ((wider("int64"),), (wider("string"),), How.NOT, "as string"),
        ((wider("string"),), (wider("large_string"),), How.NOT, "as large_string"),
        ((N, X), (N, wider("decimal128(11, 4)", X)), How.NOT, "decimal128"),
        ((N,), (N._replace(nullable=False),), How.NOT, "without null"),
        ((N,), (N, X._replace(nullable=False)), How.NOT, "in addition, which may not be null"),
        ((N, X), (N, Column("renamed", "decimal128(10, 2)")), How.NOT, "may be the same"),
    ],
)
def test_how_fields_continue_others(before: Any, after: Any, how: How, says: str) -> None:
    found = evolution(before, after)
    assert found.how is how
    assert says in found.says


def state(*columns: Column) -> Any:
    return (replace(KEPT, columns=columns),)


def test_values_are_kept_by_name_when_a_new_version_begins() -> None:
    n, total = KEPT.columns
    with pytest.raises(CheckpointMismatch, match=r"the order sum, n.*give the operator a new version"):
        take_over(History.of(QUERY), with_node(2, state=state(total, n)), clean(5))
    second = with_node(2, version="2", state=state(total, n), previous=frozenset({"1"}))
    history = take_over(History.of(QUERY), second, seen(5)).history
    schedule = history.schedule(2)
    assert schedule.entries == ((0, "1"), (6, "2")), "the version before has to repeat what it began"
    assert schedule.moved("1", "2") == {"": ("n", "sum")}
    assert schedule.moved("2", "1") == {"": ("sum", "n")}
    more = with_node(2, second, state=state(total, n, Column("more", "string")))
    assert take_over(history, more, clean(9)).history.schedule(2).moved("1", "2") == {"": ("n", "sum")}


def test_fields_that_come_behind_are_not_moved() -> None:
    """Nothing is rewritten where what is kept can be read as it is."""
    second = with_node(2, version="2", state=state(*KEPT.columns, Column("more", "string")))
    assert take_over(History.of(QUERY), second, clean(5)).history.schedule(2).moved("1", "2") == {}


def test_a_version_that_is_used_again_has_the_fields_that_it_had() -> None:
    """An instance says by which version its state was kept; that one's fields are not to be mistaken."""
    n, total = KEPT.columns
    second = take_over(History.of(QUERY), with_node(2, version="2", state=state(total)), clean(5)).history
    with pytest.raises(CheckpointMismatch, match=r"version '1' of node 2 .* had the fields n, sum"):
        take_over(second, with_node(2, state=state(total)), clean(9))
    again = take_over(second, with_node(2, state=state(n, total)), clean(9)).history.schedule(2)
    assert again.moved("2", "1") == {"": ("sum",)}
    take_over(second, with_node(2, version="3", state=state(total)), clean(9))


def test_a_variable_that_was_not_declared_meanwhile_is_not_kept_anew() -> None:
    """The version before has left nothing of it that could be."""
    n, total = KEPT.columns
    without = take_over(History.of(QUERY), with_node(2, version="2", state=()), clean(5)).history
    with pytest.raises(CheckpointMismatch, match=r"the state of node 2 .* has the order sum, n"):
        take_over(without, with_node(2, version="3", state=state(total, n)), clean(9))
    take_over(without, with_node(2, version="3", state=state(n, total)), clean(9))
