"""Expressions as values: what Spark's analysis leaves of them, without a JVM, and the steps that they stand in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

COLUMN = "column"
LITERAL = "literal"


class Unsupported(Exception):
    """An expression that is not evaluated in a replica; its text says which one."""

    def __init__(self, expression: Expression, why: str = "") -> None:
        super().__init__(f"{expression.text} ({expression.op}){': ' + why if why else ''}")


class Expression(NamedTuple):
    """`op` is the class of Spark's expression, `kind` the type of its values as Spark writes it, `more` what the class
    says beside its children, by name. A column is known by its place in the row, a literal by its value."""

    op: str
    kind: str
    args: tuple[Expression, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    text: str = ""  # SQL, for messages

    def said(self, name: str, default: Any = None) -> Any:
        return dict(self.more).get(name, default)

    @property
    def canonical(self) -> tuple[Any, ...]:
        """What it does: the same for two expressions that always give the same."""
        return self.op, self.kind, self.more, tuple(arg.canonical for arg in self.args)


@dataclass(frozen=True, slots=True)
class Select:
    """A row is made of each row."""

    columns: tuple[Expression, ...]

    @property
    def canonical(self) -> tuple[Any, ...]:
        return "select", tuple(column.canonical for column in self.columns)


@dataclass(frozen=True, slots=True)
class Where:
    """The rows for which it is true."""

    condition: Expression

    @property
    def canonical(self) -> tuple[Any, ...]:
        return "where", self.condition.canonical


Step = Select | Where


@dataclass(frozen=True)
class Derivation:
    """How rows are made of those of an output: steps, one after another. `schema` is that of the rows that come out."""

    steps: tuple[Step, ...]
    schema: pa.Schema
    zone: str  # in which the values of timestamps are meant
    said: tuple[str, ...] = ()  # the steps as users read them

    def then(self, more: Derivation) -> Derivation:
        return Derivation(self.steps + more.steps, more.schema, more.zone, self.said + more.said)

    @cached_property
    def digest(self) -> str:
        """The same in every process, and as long as the same is asked for under the same names and types."""
        fields = [(field.name, str(field.type), field.nullable) for field in self.schema]
        what = (tuple(step.canonical for step in self.steps), fields, self.zone)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
