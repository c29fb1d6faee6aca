"""From which columns of its input each column of an operator's output comes, where that is known.

It is known of expressions, of aggregates, of joins, and of what lets rows through as they are. What a user's function
does with a row is not. The words are OpenLineage's: a column is made of others (direct), or others have a say in which
rows there are and what is chosen for it (indirect).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from clonos.operators.expressions.tree import COLUMN, LITERAL, Expression

T = TypeVar("T", bound=Hashable)
S = TypeVar("S", bound=Hashable)

_BRANCHES: Final = frozenset({"If", "CaseWhen"})


class Transformation(Enum):
    """What becomes of a column: type and subtype as OpenLineage calls them. Of the direct ones, the later hides the
    earlier where one follows the other."""

    IDENTITY = "DIRECT", "IDENTITY"
    TRANSFORMATION = "DIRECT", "TRANSFORMATION"
    AGGREGATION = "DIRECT", "AGGREGATION"
    CONDITIONAL = "INDIRECT", "CONDITIONAL"
    FILTER = "INDIRECT", "FILTER"
    GROUP_BY = "INDIRECT", "GROUP_BY"
    JOIN = "INDIRECT", "JOIN"

    @property
    def is_direct(self) -> bool:
        return self.value[0] == "DIRECT"

    def then(self, other: Transformation) -> Transformation:
        """This one, and the other behind it."""
        if not self.is_direct:
            return self
        if not other.is_direct:
            return other
        order = list(Transformation)
        return max(self, other, key=order.index)


Flow: TypeAlias = frozenset[tuple[T, Transformation]]
"""The columns that one comes from, each with what becomes of it. Where it is not known, there is None in its place."""


class Input(Enum):
    """Which columns of an operator's input a number counts."""

    ROW = "row"
    RIGHT = "right"
    """Of the second input."""
    KEY = "key"
    RIGHT_KEY = "right key"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class From:
    """One column of an operator's input: which of them, counted from 0."""

    of: Input
    at: int


@dataclass(frozen=True, slots=True)
class ColumnFlow:
    """Of one operator. `columns` are those of its output, in their order; None: they are its input's, as they are.
    `rows` have a say in which rows there are."""

    columns: tuple[Flow[From] | None, ...] | None
    rows: Flow[From] = frozenset()


UNCHANGED: Final = ColumnFlow(None)


@runtime_checkable
class KnowsColumns(Protocol):
    """An operator that knows what its columns come from."""

    def column_flow(self, keys: int) -> ColumnFlow | None:
        """With a key of so many columns. None where it is a user's function that says it after all."""


def identity(of: T) -> Flow[T]:
    """A column as it is."""
    return frozenset({(of, Transformation.IDENTITY)})


def as_they_are(of: Input, places: Iterable[int]) -> list[Flow[From]]:
    """Columns of an operator's input."""
    return [identity(From(of, at)) for at in places]


def through(flow: Flow[T], transformation: Transformation) -> Flow[T]:
    """With one more transformation behind it."""
    return frozenset((of, before.then(transformation)) for of, before in flow)


def followed(flow: Flow[S], before: Callable[[S], Flow[T] | None]) -> Flow[T] | None:
    """Further back: what the columns that it comes from come from. None where that is not known of one of them."""
    found: set[tuple[T, Transformation]] = set()
    for of, transformation in flow:
        known = before(of)
        if known is None:
            return None
        found |= through(known, transformation)
    return frozenset(found)


def of_expression(expression: Expression, columns: Callable[[int], Flow[T] | None]) -> Flow[T] | None:
    """What an expression comes from; `columns` says it of the columns that it is over, by their places."""
    if expression.op == COLUMN:
        return columns(expression.said("index"))
    if expression.op == LITERAL:
        return frozenset()
    conditions = _conditions(expression)
    found: set[tuple[T, Transformation]] = set()
    for place, arg in enumerate(expression.args):
        flow = of_expression(arg, columns)
        if flow is None:
            return None
        kind = Transformation.CONDITIONAL if place in conditions else Transformation.TRANSFORMATION
        found |= through(flow, kind)
    return frozenset(found)


def columns_named(expression: Expression) -> set[int]:
    """The columns that an expression is over, by their places."""
    own = {expression.said("index")} if expression.op == COLUMN else set()
    return own.union(*map(columns_named, expression.args))


def _conditions(expression: Expression) -> frozenset[int]:
    """Which of its arguments say what is chosen: of `CASE`, each before a value; of `IF`, the first."""
    if expression.op not in _BRANCHES:
        return frozenset()
    return frozenset(range(0, len(expression.args) - 1, 2)) if expression.op == "CaseWhen" else frozenset({0})
