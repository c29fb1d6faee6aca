"""Spark's types as Arrow types, without a JVM.

A replica must understand a schema that a user wrote (`StructType`, DDL text or an Arrow schema) in a process that has
no JVM and need not import pyspark. Arrow's types are the one vocabulary inside: timestamps with UTC are Spark's
TIMESTAMP, without a zone TIMESTAMP_NTZ, microseconds throughout. The mapping is the one Spark itself uses for Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.protocol.destination import KeyKind
from clonos.protocol.topology import Column, Columns

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
    "decimal": pa.decimal128(10, 0),
    "dec": pa.decimal128(10, 0),
    "numeric": pa.decimal128(10, 0),
}
_KEYS: tuple[tuple[Callable[[pa.DataType], bool], KeyKind], ...] = (
    (pa.types.is_string, KeyKind.STRING),
    (pa.types.is_boolean, KeyKind.BOOLEAN),
    (pa.types.is_integer, KeyKind.INTEGER),
    (lambda kind: pa.types.is_decimal(kind) and kind.scale == 0, KeyKind.DECIMAL),
    (pa.types.is_date, KeyKind.DATE),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, KeyKind.TIMESTAMP),
    (pa.types.is_binary, KeyKind.BINARY),
)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|('(?:[^'\\]|\\.)*')|([\w.]+)|(.))", re.DOTALL)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")

COLUMNS_APART = "Name them apart, or drop one: columns go by name"


def key_kind(kind: pa.DataType) -> KeyKind:
    """What a key of this type is to the routing."""
    for fits, found in _KEYS:
        if fits(kind):
            return found
    raise QueryDefinitionError(f"a column of type {kind} cannot be a key")


def columns_of(schema: pa.Schema) -> Columns:
    """As a checkpoint is bound to them."""
    return tuple(Column(field.name, str(field.type), field.nullable) for field in schema)


def arrow_schema(spec: Any) -> pa.Schema:
    """The Arrow schema of a `StructType`, of DDL text such as "a INT, b ARRAY<STRING>", or of an Arrow schema."""
    if isinstance(spec, pa.Schema):
        return spec
    if isinstance(spec, pa.StructType):
        return pa.schema([spec.field(i) for i in range(spec.num_fields)])
    if isinstance(spec, str):
        return pa.schema(_Ddl(spec).table())
    if hasattr(spec, "jsonValue"):
        said = spec.jsonValue()
        if isinstance(said, dict) and said["type"] == "struct":
            _distinct(said["fields"], "there are two columns called", COLUMNS_APART)
        kind = _from_json(said)
        if isinstance(kind, pa.StructType):
            return arrow_schema(kind)
        return pa.schema([pa.field("value", kind)])
    raise QueryDefinitionError(
        f"a schema is needed, not {type(spec).__name__}",
        hint="Give a pyspark StructType, a DDL string such as 'n INT, name STRING', or a pyarrow schema",
    )


def _from_json(kind: Any) -> pa.DataType:
    """Spark's own JSON form of a data type, as `DataType.jsonValue()` gives it."""
    if isinstance(kind, str):
        text = kind.lower()
        if text in _SIMPLE:
            return _SIMPLE[text]
        if match := _DECIMAL.fullmatch(text):
            return _decimal(int(match[1]), int(match[2]))
        if text.startswith(("char(", "varchar(")):
            raise _of_a_length(text)
        if text.startswith(("string collate", "string ")):
            return pa.string()
        if text.startswith("interval"):
            return _interval(text)
        raise QueryDefinitionError(f"the type {kind!r} is not supported")
    name = kind["type"]
    if name == "struct":
        return pa.struct(
            [
                _field(f["name"], _from_json(f["type"]), nullable=f.get("nullable", True))
                for f in _distinct(kind["fields"])
            ]
        )
    if name == "array":
        return pa.list_(_field("element", _from_json(kind["elementType"]), nullable=kind["containsNull"]))
    if name == "map":
        return _map(_from_json(kind["keyType"]), _from_json(kind["valueType"]), kind["valueContainsNull"])
    raise QueryDefinitionError(f"the type {name!r} is not supported")


def _field(name: str, kind: pa.DataType, *, nullable: bool) -> pa.Field:
    """Nothing but null is of the type of `array()`, whatever Spark says of it."""
    return pa.field(name, kind, nullable=nullable or pa.types.is_null(kind))


def _distinct(
    fields: list[Any],
    what: str = "a struct has two fields",
    hint: str = "Name them apart: values of a struct go by name",
) -> list[Any]:
    names = [field["name"] for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise QueryDefinitionError(f"{what} {name!r}", hint=hint)
    return fields


def _of_a_length(text: str) -> QueryDefinitionError:
    return QueryDefinitionError(
        f"the type {text!r} is not supported: values would neither be padded nor checked for their length",
        hint="Use string",
    )


def _map(key: pa.DataType, value: pa.DataType, nullable: bool) -> pa.DataType:
    if pa.types.is_null(key):
        raise QueryDefinitionError(
            "a map has keys of no type, as map() without arguments has",
            hint="Say of which type it is: cast(map() as map<string,int>), or "
            'create_map().cast("map<string,int>")',
        )
    return pa.map_(pa.field("key", key, nullable=False), _field("value", value, nullable=nullable))


def _decimal(precision: int, scale: int) -> pa.DataType:
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise QueryDefinitionError(f"decimal({precision},{scale}) is not a decimal type of Spark")
    return pa.decimal128(precision, scale)


def _interval(text: str) -> pa.DataType:
    if "year" in text or "month" in text:
        raise QueryDefinitionError(f"the type {text!r} is not supported", hint="Use an integer of months")
    if not any(unit in text for unit in ("day", "hour", "minute", "second")):
        raise QueryDefinitionError(f"the type {text!r} is not supported", hint="Use interval day to second")
    return pa.duration("us")


class _Ddl:
    """A recursive-descent reader of Spark's DDL for schemas: `name TYPE [NOT NULL] [COMMENT '...'], ...`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [m for m in _TOKEN.finditer(text) if m.group().strip()]
        self._at = 0

    def table(self) -> list[pa.Field]:
        """The whole text; a lone type ("INT", "STRUCT<...>") is a table of its own, as in Spark."""
        if len(self._tokens) >= 1 and (len(self._tokens) == 1 or self._tokens[1].group().strip() in "<("):
            kind = self._type()
            fields = list(kind) if isinstance(kind, pa.StructType) else [pa.field("value", kind)]
        else:
            fields = self._fields(end=None, colon=False)
        if self._peek() is not None:
            self._fail("expected the end")
        return fields

    def _fields(self, end: str | None, colon: bool) -> list[pa.Field]:
        fields = []
        while True:
            name = self._name()
            if self._peek() == ":":
                self._at += 1
            elif colon and self._peek() is None:
                self._fail("expected ':'")
            kind = self._type()
            nullable = True
            while (word := (self._peek() or "").lower()) in ("not", "comment"):
                self._at += 1
                if word == "not":
                    self._expect("null")
                    nullable = False
                else:
                    self._at += 1
            fields.append(pa.field(name, kind, nullable=nullable))
            if self._peek() != ",":
                break
            self._at += 1
        if end is not None:
            self._expect(end)
        return fields

    def _type(self) -> pa.DataType:
        word = self._word().lower()
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return pa.list_(pa.field("element", element))
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return _map(key, value, True)
        if word == "struct":
            self._expect("<")
            if self._peek() == ">":
                self._at += 1
                return pa.struct([])
            return pa.struct(self._fields(end=">", colon=True))
        if word == "interval":
            parts = [word]
            while (self._peek() or "").lower() in ("day", "hour", "minute", "second", "year", "month", "to"):
                parts.append(self._word().lower())
            return _interval(" ".join(parts))
        return self._scalar(word)

    def _scalar(self, word: str) -> pa.DataType:
        numbers = []
        if self._peek() == "(" and word in ("decimal", "dec", "numeric", "char", "varchar"):
            self._at += 1
            numbers.append(int(self._word()))
            if self._peek() == ",":
                self._at += 1
                numbers.append(int(self._word()))
            self._expect(")")
        if word in ("char", "varchar"):
            raise _of_a_length(f"{word}({', '.join(map(str, numbers))})")
        if numbers:
            return _decimal(numbers[0], numbers[1] if len(numbers) > 1 else 0)
        if word == "string" and (self._peek() or "").lower() == "collate":
            self._at += 2
        if word not in _SIMPLE:
            self._at -= 1
            self._fail("unknown type")
        return _SIMPLE[word]

    def _peek(self) -> str | None:
        return self._tokens[self._at].group().strip() if self._at < len(self._tokens) else None

    def _name(self) -> str:
        token = self._peek()
        if token is not None and token.startswith("`"):
            self._at += 1
            return token[1:-1].replace("``", "`")
        return self._word()

    def _word(self) -> str:
        token = self._peek()
        if token is None or not re.fullmatch(r"[\w.]+", token):
            self._fail("expected a name or a type")
        self._at += 1
        return str(token)

    def _expect(self, token: str) -> None:
        if (self._peek() or "").lower() != token:
            self._fail(f"expected {token!r}")
        self._at += 1

    def _fail(self, what: str) -> None:
        place = self._tokens[self._at].start() if self._at < len(self._tokens) else len(self._text)
        found = self._peek()
        raise QueryDefinitionError(
            f"the schema {self._text!r} cannot be read: {what} at character {place}"
            + (f", found {found!r}" if found is not None else ""),
        )
