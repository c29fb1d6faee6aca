"""Keys as they are given to commands: each type's keys are shown so that they can be given back, and what is given is
that key and no other, or refused with an example."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from clonos.archive.given_key import KeyColumn, KeyForm
from clonos.errors import ConfigurationError, QueryDefinitionError
from clonos.operators.rows import RowDecoder, local, zone_of
from clonos.operators.types import arrow_schema, key_kind
from clonos.protocol.destination import KeyKind
from clonos.spark.routing import check_key_types
from clonos.values.grouping_keys import key_of
from clonos.values.key_codec import pack
from clonos.values.readable import key_said

ZONE = "Europe/Berlin"
TWICE = dt.datetime(2026, 10, 25, 2, 30)  # which clocks show twice there
TEXTS = """1.10 1.1 1e3 1000.0 null None true True Infinity NaN -0 0 [ [] [1] {} {"a":1} "quoted" " ' 'x' \\ é ß 日本
ff00ab 2026-11-29 ["a"] ["a","b"] [null] 1_000 +5 0x10""".split()
TEXTS += ["", " ", " a ", "a, b", "'a', 'b'", '"', "\n", "\x00N", "\x1f", "[" * 100_000, "9" * 5000]
VALUES: dict[str, list[Any]] = {
    "string": TEXTS,
    "boolean": [True, False],
    "tinyint": [-128, -1, 0, 127],
    "smallint": [-(1 << 15), 0, (1 << 15) - 1],
    "int": [-(1 << 31), 0, (1 << 31) - 1],
    "bigint": [-(1 << 63), 0, 20240102, (1 << 63) - 1],
    "decimal(5,0)": [Decimal(each) for each in (-99999, 0, 10, 100, 99999)],
    "decimal(38,0)": [Decimal(each) for each in ("9" * 38, "-1", "1" + "0" * 37)],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 11, 29), dt.date(9999, 12, 31)],
    "timestamp": [
        dt.datetime(1890, 1, 1),  # before there were zones
        dt.datetime(2026, 7, 1, 12, 0, 0, 1),
        TWICE,
        TWICE.replace(fold=1),
        TWICE.replace(microsecond=123456, fold=1),
        dt.datetime(9999, 12, 31),
    ],
    "binary": [b"", b"\xff\x00\xab", b"ab", b"1234", b"null"],
}


def form(*types: str, zone: str = ZONE) -> KeyForm:
    columns = []
    for at, said in enumerate(types):
        kind = arrow_schema(said).field(0).type
        columns.append(KeyColumn(f"k{at}", kind))
    return KeyForm("count", tuple(columns), zone)


def same(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """To the byte that state is kept under; and what only looks alike is told apart."""
    return pack(key) == pack(other) and key == other and list(map(type, key)) == list(map(type, other))


def texts_of(one: KeyForm, key: tuple[Any, ...]) -> list[str]:
    """In which ways `clonos state` shows it: to be read, and as JSON; its only value, unless that looks like JSON."""
    shown = one.shown(key)
    found = [one.text(key), json.dumps(shown), json.dumps(shown, indent=1)]
    if len(key) == 1 and isinstance(shown[0], str) and shown[0].strip()[:1] not in ('"', "["):
        found.append(shown[0])
    return found


def test_every_type_that_a_key_can_have_is_tried() -> None:
    assert {key_kind(arrow_schema(said).field(0).type) for said in VALUES} == set(KeyKind)
    for said in VALUES:
        check_key_types(schema(said), ["k"])
    for said in ("double", "float", "timestamp_ntz", "decimal(5,2)", "array<int>", "struct<a:int>"):
        with pytest.raises(QueryDefinitionError, match="cannot be a key"):
            check_key_types(schema(said), ["k"])


def schema(said: str) -> Any:
    """Of one column, as much as is looked at."""
    kind = SimpleNamespace(simpleString=lambda: said)
    return SimpleNamespace(fields=[SimpleNamespace(name="k", dataType=kind)])


@pytest.mark.parametrize("said", VALUES)
def test_what_is_shown_of_a_key_is_that_key(said: str) -> None:
    one = form(said)
    shown: dict[str, Any] = {}
    for value in [*VALUES[said], None]:
        key = key_of([value])
        for text in texts_of(one, key):
            assert same(one.read(text), key), text
        assert same(one.read(json.loads(json.dumps(one.shown(key)))), key)
        for text in (one.text(key), json.dumps(one.shown(key))):
            assert shown.setdefault(text, value) is value, f"{value!r} and {shown[text]!r} are shown alike"


def test_what_is_read_is_what_the_function_is_given() -> None:
    """A key is the value that the decoder makes of the column."""
    rng = Random(1)
    for said, values in VALUES.items():
        one, zone = form(said), zone_of(ZONE)
        kind = one.columns[0].type
        for value in values:
            given = value if said != "timestamp" else value.replace(tzinfo=zone)
            column = pa.array([given], kind)
            columns = pa.schema([pa.field("k", kind)])
            decoder = RowDecoder(columns, ZONE, key=[0])
            (key,) = decoder.keys(decoder.columns(pa.RecordBatch.from_arrays([column], schema=columns)))
            assert same(one.read(one.text(key_of(key))), key_of(key))
    for _ in range(500):
        moment = local(rng.randrange(-(1 << 50), 1 << 51), zone_of(ZONE))
        key = key_of([moment])
        assert same(form("timestamp").read(form("timestamp").text(key)), key)


def test_several_columns_are_a_list() -> None:
    rng = Random(2)
    for _ in range(500):
        types = [rng.choice(list(VALUES)) for _ in range(rng.randint(2, 4))]
        one = form(*types)
        key = key_of([rng.choice([*VALUES[said], None]) for said in types])
        for text in texts_of(one, key):
            assert same(one.read(text), key), text
        named = key_of([*key, "a name", 3])
        read, rest = one.read_with_rest(one.text(named))
        assert same(read, key) and rest == ["a name", 3]
        with pytest.raises(ConfigurationError, match=f"has {len(types)} columns, not {len(types) + 2}"):
            one.read(one.text(named))


@pytest.mark.parametrize(
    ("said", "text", "key"),
    [
        ("string", "c-4711", "c-4711"),
        ("string", "1.10", "1.10"),
        ("string", "null", "null"),
        ("string", "[null]", None),
        ("string", '"null"', "null"),
        ("string", '{"a": 1}', '{"a": 1}'),
        ("int", "null", None),
        ("int", '"5"', 5),
        ("int", "[5]", 5),
        ("boolean", "True", True),
        ("decimal(5,0)", "1e3", Decimal(1000)),
        ("decimal(5,0)", "[10.0]", Decimal(10)),
        ("binary", "FF00AB", b"\xff\x00\xab"),
        ("binary", "1234", b"\x124"),
        ("timestamp", "2026-07-01 12:00:00", dt.datetime(2026, 7, 1, 12)),
        ("timestamp", "2026-07-01T10:00:00Z", dt.datetime(2026, 7, 1, 12)),
        ("timestamp", "2026-10-25T02:30:00", TWICE),
        ("timestamp", "2026-10-25T02:30:00+01:00", TWICE.replace(fold=1)),
        ("date", '"2026-11-29"', dt.date(2026, 11, 29)),
    ],
)
def test_a_key_by_its_type(said: str, text: str, key: Any) -> None:
    assert same(form(said).read(text), key_of([key]))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("string", "[1]"),
        ("string", "[true]"),
        ("string", '["a", "b"]'),
        ("string", "[]"),
        ("string", '"\\ud800"'),
        ("string", "\udcff"),
        ("boolean", "1"),
        ("boolean", "[0]"),
        ("int", "1.0"),
        ("int", "[1.0]"),
        ("int", "1e3"),
        ("int", "true"),
        ("int", "[true]"),
        ("int", "1_000"),
        ("int", "²"),
        ("int", ""),
        ("int", "2147483648"),
        ("tinyint", "[-129]"),
        ("bigint", "9" * 5000),
        ("decimal(5,0)", "100000"),
        ("decimal(5,0)", "1e999999999"),
        ("decimal(5,0)", "1.5"),
        ("decimal(5,0)", "NaN"),
        ("date", "2026-11-29T00:00:00"),
        ("date", "[20261129]"),
        ("date", "2026-02-29"),
        ("timestamp", "2026-03-29T02:30:00"),
        ("timestamp", "2026-07-01T12:00:00.1234567"),
        ("timestamp", "[1764410000]"),
        ("timestamp", "0001-01-01T00:00:00+14:00"),
        ("timestamp", "yesterday"),
        ("binary", "b'ab'"),
        ("binary", "abc"),
        ("binary", "f f"),
    ],
)
def test_what_is_no_key_is_refused_with_an_example(said: str, text: str) -> None:
    one = form(said)
    with pytest.raises(ConfigurationError, match=r"is no key of 'count'|has 1 columns, not") as refused:
        one.read(text)
    assert refused.value.hint is not None
    _, *examples = refused.value.hint.split("--key ")
    assert len(examples) == 2
    for example in examples:
        one.read(example.partition(", or")[0].strip("'"))


def test_keys_of_several_columns_and_of_none_are_refused() -> None:
    two = form("string", "int")
    for text in ("a", '"a"', '["a"]', '["a", "b"]', '["a", 1, 2]', "null"):
        with pytest.raises(ConfigurationError, match="'count'") as refused:
            two.read(text)
        assert (
            refused.value.hint
            == """A key is a JSON list of its columns' values, as in --key '["c-4711", 42]'"""
        )
    with pytest.raises(ConfigurationError, match="has no key"):
        form().read("[]")


def test_what_is_kept_under_a_name_has_it_behind_its_key() -> None:
    key = key_of(["a", TWICE.replace(fold=1)])
    assert same(key_said(pack("a variable") + pack(key)), key_of([*key, "a variable"]))
    assert key_said(pack(key)) == key
    assert key_said(pack("alone")) == "alone"
    for torn in (pack(key)[:-1], pack("a variable") + pack(key)[:-1], pack(key) + b"\xc1", b""):
        assert key_said(torn) == torn.hex()
