"""Which rows of an operator had these values: what `clonos explain` is to be asked, where ids are not known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from math import isnan
from typing import Any

from clonos.archive.desk import Desk
from clonos.archive.explain import as_json
from clonos.archive.tracing import TracedCall, Watcher
from clonos.errors import ConfigurationError
from clonos.protocol.ids import Epoch, OutputNumber
from clonos.protocol.side_output import OutputName
from clonos_standby.cluster.spec import NodeSpec


@dataclass(frozen=True, slots=True)
class FoundRow:
    number: OutputNumber
    epoch: Epoch
    output: OutputName
    row: dict[str, Any]


class Finder(Watcher):
    """Looks at every row. `wanted` says of columns which values they have to have, as text; `tells` is given what is
    found."""

    keeps_state = False
    is_on = True

    def __init__(self, wanted: dict[str, str], tells: Callable[[FoundRow], None]) -> None:
        super().__init__()
        self._wanted = {column: _values(text) for column, text in wanted.items()}
        self._tells = tells
        self._epoch: Epoch
        self._desk: Desk

    def begins(self, desk: Desk, epoch: Epoch, node: NodeSpec) -> None:
        """An epoch is about to be repeated. Raises ConfigurationError where the operator has no such column."""
        self._desk, self._epoch = desk, epoch
        known = {name for schema in node.outputs.values() for name in schema.names}
        if unknown := self._wanted.keys() - known:
            raise ConfigurationError(
                f"operator {node.name!r} has no column {', '.join(sorted(unknown))}",
                hint=f"It has {', '.join(sorted(known))}",
            )

    def ended(self, call: TracedCall) -> None:
        for at, (output, columns) in enumerate(self._desk.shown(call.outputs)):
            if all(_is_one_of(columns.get(name), values) for name, values in self._wanted.items()):
                self._tells(FoundRow(OutputNumber(call.first + at), self._epoch, output, columns))


def _values(text: str) -> tuple[Any, ...]:
    """What a text may stand for: itself, and what it is as JSON."""
    try:
        return text, json.loads(text)
    except ValueError:
        return (text,)


def as_condition(value: Any) -> str | None:
    """A value, as JSON has it, for people to read, and to look for: a text as it is, but in quotes where it would be
    taken for null, or for a text in quotes, or some of it would not be seen. None stands for null."""
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    seen = value.strip()
    is_plain = value == seen and seen not in ("", "null") and not seen.startswith('"')
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _is_one_of(value: Any, wanted: tuple[Any, ...]) -> bool:
    text, *values = wanted
    if isinstance(value, bool):
        return any(value is each for each in values)
    if isinstance(value, float) and isnan(value):
        return str(text).casefold() == "nan"
    if isinstance(value, Decimal):
        return bool(values) and isinstance(values[0], int | float) and value == Decimal(text)
    shown = as_json(value)
    return bool(value in wanted or text in (str(value), shown) or shown in values)
