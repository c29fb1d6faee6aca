"""A condition on a row, `column=value`, as it is said on a command line: the value is read by the column's type."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import pyarrow as pa

from clonos.archive.given_value import example_of, read_text, values_of
from clonos.archive.shown_row import ShownRow
from clonos.errors import ConfigurationError
from clonos.operators.rows import spark_name, zone_of
from clonos.protocol.side_output import OutputName
from clonos_standby.cluster.spec import NodeSpec

_QUOTED: Final = re.compile(r"\s*`((?:[^`]|``)+)`\s*=(.*)", re.DOTALL)
_NAN: Final = object()

Wanted = Mapping[OutputName, Any]
"""By the outputs that can have it, the value that is looked for, so that it can be compared."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A column has the value that a text stands for."""

    column: str
    text: str

    @classmethod
    def parse(cls, said: str) -> Condition:
        """A column whose name has "=" in it is given in backquotes. Raises ConfigurationError."""
        if (quoted := _QUOTED.fullmatch(said)) is not None:
            return cls(quoted[1].replace("``", "`"), quoted[2])
        column, equals, text = said.partition("=")
        if not equals:
            raise ConfigurationError(f"{said!r} is no condition", hint="Say column=value")
        return cls(column.strip(), text)

    def wanted_of(self, node: NodeSpec) -> Wanted:
        """Of the outputs of an operator. Raises ConfigurationError where none has such a column, or none can have such
        a value in it."""
        kinds = {
            output: schema.field(self.column).type
            for output, schema in node.outputs.items()
            if schema.names.count(self.column) == 1
        }
        if not kinds:
            known = {name for schema in node.outputs.values() for name in schema.names}
            raise ConfigurationError(
                f"operator {node.name!r} has no column {self.column}",
                hint=f"It has {', '.join(map(_named, sorted(known)))}",
            )
        zone, found, whys = zone_of(node.zone), dict[OutputName, Any](), dict[str, str]()
        for output, kind in kinds.items():
            try:
                found[output] = _comparable(read_text(self.text, kind, zone))
            except (ValueError, ArithmeticError) as error:
                whys[spark_name(kind)] = str(error)
        if not found:
            of_types = "; ".join(f"of a {kind}, {why}" for kind, why in whys.items())
            raise ConfigurationError(
                f"{self.text!r} is no value of the column {self.column} of operator {node.name!r}: {of_types}",
                hint=f"As in {' or '.join(dict.fromkeys(map(self._example, kinds.values())))}",
            )
        return found

    def is_met_by(self, row: ShownRow, wanted: Wanted) -> bool:
        return row.output in wanted and bool(_comparable(row.columns[self.column]) == wanted[row.output])

    def _example(self, kind: pa.DataType) -> str:
        """As a shell takes it."""
        value = example_of(kind)
        text = value if isinstance(value, str) else json.dumps(value)
        return shlex.quote(f"{_named(self.column)}={text}")


def as_condition(value: Any) -> str | None:
    """A value, as JSON has it, for people to read, and to look for: a text as it is, but in quotes where it would be
    taken for null, or for a list or a text in quotes, or some of it would not be seen. None stands for null."""
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    is_plain = (
        value == value.strip() and value not in ("", "null") and values_of(value, pa.string()) == [value]
    )
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _named(column: str) -> str:
    """As it is given."""
    if "=" in column or "`" in column or column != column.strip():
        return f"`{column.replace('`', '``')}`"
    return column


def _comparable(value: Any) -> Any:
    """NaN is NaN, as in Spark."""
    if isinstance(value, float) and isnan(value):
        return _NAN
    if isinstance(value, tuple | list):
        return [_comparable(each) for each in value]
    if isinstance(value, dict):
        return {_comparable(key): _comparable(item) for key, item in value.items()}
    return value
