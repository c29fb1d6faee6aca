"""A key as people and programs write it, on a command line or in JSON: by the types of the key's columns.

Of one column it is the value's text, or that as a JSON string; of several, or if one likes of one, a JSON list. Text of
a text column stands for itself, whatever it looks like, unless it is a JSON string or list. What is shown of a key can
be given back, and is that key: no two keys are shown alike.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from clonos.archive.given_value import example_of, read_value, values_of
from clonos.archive.reading import ArchivedQuery
from clonos.archive.shown_value import as_json, with_instants
from clonos.errors import ConfigurationError, StateError
from clonos.operators.rows import instant, is_zoned, local, spark_name, zone_of
from clonos.operators.types import arrow_schema
from clonos.values.grouping_keys import key_of
from clonos_standby.cluster.spec import NodeSpec

Key = tuple[Any, ...]

HELP: Final = "as `clonos state` shows it; of several columns a JSON list"
"""Of an option that takes a key."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One of a key's columns."""

    name: str
    type: pa.DataType

    def read(self, given: Any, zone: dt.tzinfo | None) -> Any:
        """A value as JSON has it, or its text, as the operator's function knows it. Raises ValueError, or
        ArithmeticError."""
        found = read_value(given, self.type, zone)
        return local(instant(found, zone), zone) if is_zoned(self.type) and found is not None else found


@dataclass(frozen=True, slots=True)
class KeyForm:
    """What keys of an operator look like."""

    operator: str
    columns: tuple[KeyColumn, ...]
    zone: str

    @classmethod
    def of(cls, query: ArchivedQuery, operator: str) -> KeyForm:
        """Raises ConfigurationError where there is no such operator."""
        node = query.program.node(query.node(operator))
        if node.key_types is None:
            raise StateError(
                f"the checkpoint does not say of which types the key of {operator!r} is",
                hint="It is of an earlier version: start the query once with this one",
            )
        types = [arrow_schema(each).field(0).type for each in node.key_types]
        columns = [KeyColumn(name, type) for name, type in zip(node.key, types, strict=True)]
        return cls(operator, tuple(columns), query.zone)

    @classmethod
    def of_program(cls, node: NodeSpec) -> KeyForm:
        """As a program of the operator has it."""
        fields = [node.input.field(at) for at in node.key]
        return cls(node.name, tuple(KeyColumn(each.name, each.type) for each in fields), node.zone)

    # ---------------------------------------------------------------- as it is given

    def read(self, given: str | Sequence[Any]) -> Key:
        """The key that a text stands for, or that has these values, as JSON has them. Raises ConfigurationError."""
        key, rest = self.read_with_rest(given)
        if rest:
            raise self._of_another_size(len(key) + len(rest))
        return key

    def read_with_rest(self, given: str | Sequence[Any]) -> tuple[Key, list[Any]]:
        """Behind the values of a key there may be the name under which something of it is kept."""
        types = [each.type for each in self.columns]
        values = values_of(given, *types) if isinstance(given, str) else list(given)
        if len(values) < len(self.columns) or not self.columns:
            raise self._of_another_size(len(values))
        zone, found = zone_of(self.zone), []
        for column, value in zip(self.columns, values, strict=False):
            try:
                found.append(column.read(value, zone))
            except (ValueError, ArithmeticError) as error:
                said = f"{error} ({column.name!r} is a {spark_name(column.type)})"
                raise self._refused(given, said) from error
        return key_of(found), values[len(found) :]

    def _of_another_size(self, size: int) -> ConfigurationError:
        if not self.columns:
            return ConfigurationError(f"{self.operator!r} has no key", hint="Name an operator that has")
        names = ", ".join(repr(each.name) for each in self.columns)
        return ConfigurationError(
            f"the key of {self.operator!r} has {len(self.columns)} columns, not {size}: {names}",
            hint=self._example(),
        )

    def _refused(self, given: Any, why: str) -> ConfigurationError:
        return ConfigurationError(f"{given!r} is no key of {self.operator!r}: {why}", hint=self._example())

    def _example(self) -> str:
        values = [example_of(each.type) for each in self.columns]
        listed = f"--key '{json.dumps(values)}'"
        if len(values) > 1:
            return f"A key is a JSON list of its columns' values, as in {listed}"
        alone = values[0] if isinstance(values[0], str) else json.dumps(values[0])
        return f"As in --key {alone}, or, as a JSON list, in {listed}"

    # ---------------------------------------------------------------- as it is shown

    def shown(self, key: Key) -> list[Any]:
        """As JSON has it: the values of a key, and, behind them, the name under which something of it is kept."""
        zone = zone_of(self.zone)
        values = [
            with_instants(value, column.type, zone) for value, column in zip(key, self.columns, strict=False)
        ]
        return [as_json(each, zone) for each in (*values, *key[len(values) :])]

    def text(self, key: Key) -> str:
        """The same to be read: with times as the operator's function knows them."""
        values = [as_json(each, zone_of(self.zone)) for each in key]
        alone = len(values) == 1 and values[0] is not None
        return json.dumps(values[0] if alone else values, ensure_ascii=False)


def key_given(query: ArchivedQuery, operator: str, given: str | Sequence[Any]) -> Key:
    """A key of an operator as its function knows it, of a text, or of its columns' values as JSON has them. Raises
    ConfigurationError."""
    return KeyForm.of(query, operator).read(given)
