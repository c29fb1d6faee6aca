"""A key as people and programs write it, on a command line or in JSON: by the types of the key's columns.

Of one column it is the value's text, or that as a JSON string; of several, or if one likes of one, a JSON list. Text of
a text column stands for itself, whatever it looks like, unless it is a JSON string or list. What is shown of a key can
be given back, and is that key: no two keys are shown alike.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from clonos.archive.explain import as_json
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ConfigurationError, StateError
from clonos.operators.rows import instant, local, zone_of
from clonos.operators.types import arrow_schema, key_kind
from clonos.protocol.destination import KeyKind
from clonos.values.grouping_keys import key_of

Key = tuple[Any, ...]

HELP: Final = "as `clonos state` shows it; of several columns a JSON list"
"""Of an option that takes a key."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_FINER_THAN_SPARK: Final = re.compile(r"[.,][0-9]{7}")
_EXAMPLES: Final[dict[KeyKind, Any]] = {
    KeyKind.STRING: "c-4711",
    KeyKind.BOOLEAN: True,
    KeyKind.INTEGER: 42,
    KeyKind.DECIMAL: "42",
    KeyKind.DATE: "2026-11-29",
    KeyKind.TIMESTAMP: "2026-11-29T11:27:00",
    KeyKind.BINARY: "ff00ab",
}


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One of a key's columns."""

    name: str
    said_type: str  # as Spark says it
    type: pa.DataType
    kind: KeyKind

    def read(self, given: Any, zone: dt.tzinfo | None) -> Any:
        """A value as JSON has it, or its text, as the operator's function knows it. Raises ValueError."""
        return None if given is None else _READERS[self.kind](given, self.type, zone)


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
        columns = [
            KeyColumn(name, said, type, key_kind(type))
            for name, said, type in zip(node.key, node.key_types, types, strict=True)
        ]
        return cls(operator, tuple(columns), query.program.zone or "UTC")

    # ---------------------------------------------------------------- as it is given

    def read(self, given: str | Sequence[Any]) -> Key:
        """The key that a text stands for, or that has these values, as JSON has them. Raises ConfigurationError."""
        key, rest = self.read_with_rest(given)
        if rest:
            raise self._of_another_size(len(key) + len(rest))
        return key

    def read_with_rest(self, given: str | Sequence[Any]) -> tuple[Key, list[Any]]:
        """Behind the values of a key there may be the name under which something of it is kept."""
        values = self._values(given) if isinstance(given, str) else list(given)
        if len(values) < len(self.columns) or not self.columns:
            raise self._of_another_size(len(values))
        zone, found = zone_of(self.zone), []
        for column, value in zip(self.columns, values, strict=False):
            try:
                found.append(column.read(value, zone))
            except (ValueError, OverflowError) as error:
                raise self._refused(given, f"{error} ({column.name!r} is a {column.said_type})") from error
        return key_of(found), values[len(found) :]

    def _values(self, text: str) -> list[Any]:
        """Of the columns, and of what is behind them."""
        try:
            found = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
        except (ValueError, RecursionError):
            found = _NO_JSON
        if isinstance(found, list):
            return found
        if isinstance(found, str):
            return [found]
        is_null = found is None and [each.kind for each in self.columns] != [KeyKind.STRING]
        return [None if is_null else text]

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
        values = [_EXAMPLES[each.kind] for each in self.columns]
        listed = f"--key '{json.dumps(values)}'"
        if len(values) > 1:
            return f"A key is a JSON list of its columns' values, as in {listed}"
        alone = values[0] if isinstance(values[0], str) else json.dumps(values[0])
        return f"As in --key {alone}, or, as a JSON list, in {listed}"

    # ---------------------------------------------------------------- as it is shown

    def shown(self, key: Key) -> list[Any]:
        """As JSON has it: the values of a key, and, behind them, the name under which something of it is kept."""
        return [self._shown(value) for value in key]

    def text(self, key: Key) -> str:
        """The same to be read."""
        values = self.shown(key)
        alone = len(values) == 1 and values[0] is not None
        return json.dumps(values[0] if alone else values, ensure_ascii=False)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, dt.datetime) and value.fold:  # the second time that clocks have shown it
            return value.replace(tzinfo=zone_of(self.zone)).isoformat()
        return as_json(value)


_NO_JSON: Final = object()


def key_given(query: ArchivedQuery, operator: str, given: str | Sequence[Any]) -> Key:
    """A key of an operator as its function knows it, of a text, or of its columns' values as JSON has them. Raises
    ConfigurationError."""
    return KeyForm.of(query, operator).read(given)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{given!r} is no text")
    given.encode()  # what is not UTF-8 is no text of Spark's
    return given


def _read_text(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> str:
    return _text(given)


def _read_boolean(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> bool:
    said = str(given).strip().casefold()
    if not isinstance(given, bool | str) or said not in ("true", "false"):
        raise ValueError(f"{given!r} is neither true nor false")
    return said == "true"


def _read_integer(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> int:
    said = str(given).strip()
    if isinstance(given, bool) or not isinstance(given, int | str) or not _INTEGER.fullmatch(said):
        raise ValueError(f"{given!r} is no integer")
    if not -(limit := 1 << (type.bit_width - 1)) <= (found := int(said)) < limit:
        raise ValueError(f"{given!r} is out of range")
    return found


def _read_decimal(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> Decimal:
    said = str(given).strip()
    if isinstance(given, bool) or not isinstance(given, int | Decimal | str) or not _NUMBER.fullmatch(said):
        raise ValueError(f"{given!r} is no number")
    found = Decimal(said)
    if found and found.adjusted() >= type.precision:
        raise ValueError(f"{given!r} is out of range")
    if found != found.to_integral_value():
        raise ValueError(f"{given!r} is no integer")
    return Decimal(int(found))


def _read_date(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> dt.date:
    return dt.date.fromisoformat(_text(given).strip())


def _read_timestamp(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> dt.datetime:
    said = _text(given).strip()
    if _FINER_THAN_SPARK.search(said):
        raise ValueError(f"{given!r} is finer than a microsecond")
    moment = dt.datetime.fromisoformat(said)
    found = local(instant(moment, zone), zone)
    if moment.tzinfo is None and found != moment:
        raise ValueError(f"{given!r} is a time that clocks have passed over there")
    return found


def _read_binary(given: Any, type: pa.DataType, zone: dt.tzinfo | None) -> bytes:
    if not re.fullmatch(r"([0-9a-fA-F]{2})*", said := _text(given).strip()):
        raise ValueError(f"{given!r} are no bytes as hexadecimal digits")
    return bytes.fromhex(said)


_READERS: Final[dict[KeyKind, Callable[[Any, pa.DataType, dt.tzinfo | None], Any]]] = {
    KeyKind.STRING: _read_text,
    KeyKind.BOOLEAN: _read_boolean,
    KeyKind.INTEGER: _read_integer,
    KeyKind.DECIMAL: _read_decimal,
    KeyKind.DATE: _read_date,
    KeyKind.TIMESTAMP: _read_timestamp,
    KeyKind.BINARY: _read_binary,
}
