"""What becomes of an object after it was yielded or returned never changes a row."""

from __future__ import annotations

import datetime as dt
import random
from array import array
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row
from surface_services import FakeServices, advance, opened

from clonos.errors import InputError
from clonos.operators.group_state import GroupStateOperator
from clonos.operators.process import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator
from clonos.operators.rows import RowEncoder, make_row
from clonos.operators.transform_with_state import TransformWithStateOperator
from clonos.operators.types import arrow_schema

IN = arrow_schema("k string, i int")
DATA = [make_row(("k", "i"), ("a", i)) for i in range(3)]
KEYS = [("a",)] * 3
NESTED = arrow_schema("i int, h array<int>")
GROWN = [{"i": 0, "h": [0]}, {"i": 1, "h": [0, 1]}, {"i": 2, "h": [0, 1, 2]}]


def shown(rows: list[Any], schema: Any) -> list[Any]:
    return list(RowEncoder(arrow_schema(schema)).batch(rows).to_pylist())


def test_a_history_in_the_state_is_each_time_what_it_was() -> None:
    def history(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        h = ctx.state.setdefault("h", [])
        h.append(row.i)
        yield row.i, h

    operator = opened(ProcessOperator(history, NESTED, name="p"), FakeServices())
    assert shown(operator.bundle(KEYS, DATA), NESTED) == GROWN


@pytest.mark.parametrize("schema", ["i int", "i int, h array<int>"])
def test_one_dict_that_is_yielded_again_and_again(schema: str) -> None:
    def reuse(*args: Any) -> Iterator[Any]:
        r: dict[str, Any] = {}
        for i in range(3):
            r["i"] = i
            yield r

    output = arrow_schema(schema)
    want = [0, 1, 2] * 3
    process = opened(ProcessOperator(reuse, output, name="p"), FakeServices())
    assert [row[0] for row in process.bundle(KEYS, DATA)] == want
    flat = opened(FlatMapOperator(reuse, output, name="p", pure=True), FakeServices())
    assert [row[0] for row in flat.bundle(KEYS, DATA)] == want


@pytest.mark.parametrize("pure", [True, False])
def test_what_map_and_filter_hand_back_again(pure: bool) -> None:
    kept: list[int] = []

    def reused(row: Any, *ctx: Any) -> list[Any]:
        kept.append(row.i)
        return [row.i, kept]

    mapped = opened(MapOperator(reused, NESTED, name="m", pure=pure), FakeServices())
    assert shown(mapped.bundle(KEYS, DATA), NESTED) == GROWN

    def spoils_the_one_before(row: Any, *ctx: Any) -> bool:
        spoilt.append(row)
        for one in spoilt[:-1]:
            one.h.clear()
        return True

    spoilt: list[Any] = []
    rows = [make_row(("i", "h"), (one["i"], list(one["h"]))) for one in GROWN]
    filtered = opened(FilterOperator(spoils_the_one_before, NESTED, name="f", pure=pure), FakeServices())
    assert shown(filtered.bundle(KEYS, rows), NESTED) == GROWN


def test_a_timer_yields_what_is_there_when_it_fires() -> None:
    def set_timers(key: Any, row: Any, ctx: Any) -> None:
        ctx.timer(row.i + 1, name=str(row.i))

    def fire(key: Any, timer: Any, ctx: Any) -> Iterator[Any]:
        h = ctx.state.setdefault("h", [])
        h.append(int(timer.name))
        yield {"i": int(timer.name), "h": h}

    services = FakeServices()
    operator = opened(ProcessOperator(set_timers, NESTED, name="p", on_timer=fire), services)
    assert operator.bundle(KEYS, DATA) == []
    assert shown(advance(operator, services, 5_000_000), NESTED) == GROWN


class Growing:
    """A StatefulProcessor that yields one list again and again."""

    def __init__(self, pandas: bool) -> None:
        self._pandas = pandas

    def init(self, handle: Any) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, times: Any) -> Iterator[Any]:
        seen: list[int] = []
        frame = pd.DataFrame({"i": [0], "h": [seen]})
        for i in range(3):
            seen.append(i)
            frame["i"] = i
            yield frame if self._pandas else Row(i=i, h=seen)


@pytest.mark.parametrize("pandas", [False, True])
def test_transform_with_state(pandas: bool) -> None:
    made = TransformWithStateOperator(Growing(pandas), input=IN, output=NESTED, name="t", pandas=pandas)
    assert shown(opened(made, FakeServices()).bundle(KEYS, DATA), NESTED) == GROWN


def test_frames_of_apply_in_pandas_with_state() -> None:
    def grow(key: Any, pdfs: Any, state: Any) -> Iterator[Any]:
        values = np.zeros(1, "int64")
        frame = pd.DataFrame({"i": values, "b": [bytearray(b"a")]}, copy=False)
        for i in range(3):
            values[0] = i
            frame.loc[0, "i"] = i
            frame["b"][0][:] = b"%d" % i
            yield frame

    schema = arrow_schema("i bigint, b binary")
    made = GroupStateOperator(grow, input=IN, output=schema, state="n int", name="g")
    got = opened(made, FakeServices()).bundle(KEYS, DATA)
    assert got == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_an_output_that_is_no_row_is_named_by_its_number() -> None:
    def third(row: Any) -> Any:
        return "x" if row.i == 2 else (row.i,)

    with pytest.raises(InputError, match="output 2 of 'm' is not a row") as caught:
        opened(MapOperator(third, arrow_schema("i int"), name="m", pure=True), FakeServices()).bundle(
            KEYS, DATA
        )
    assert caught.value.where is not None
    assert caught.value.where.position == 2


# --------------------------------------------------------------------------- any value, any change

Pair = namedtuple("Pair", "x tags")


@dataclass
class Fields:
    x: Any
    tags: Any


def _list(rng: random.Random, element: Callable[[random.Random], Any]) -> list[Any]:
    return [element(rng) for _ in range(rng.randrange(4))]


def _number(rng: random.Random) -> int:
    return rng.randrange(100)


def numbers(rng: random.Random) -> Any:
    made = _list(rng, _number)
    of = (list, tuple, deque, set, lambda v: np.array(v, "int32"), lambda v: array("l", v), lambda v: None)
    return rng.choice(of)(made)


def structs(rng: random.Random) -> Any:
    x, tags = _number(rng), numbers(rng)
    return rng.choice(
        (
            {"x": x, "tags": tags},
            OrderedDict(tags=tags, x=x),
            {"tags": tags},
            (x, tags),
            Pair(x, tags),
            Row(x=x, tags=tags),
            Row(tags=tags, x=x),
            make_row(("x", "tags"), (x, tags)),
            Fields(x, tags),
            None,
        )
    )


def lists_of_structs(rng: random.Random) -> Any:
    return rng.choice((list, tuple, deque))(_list(rng, structs))


def maps(rng: random.Random) -> Any:
    made = {str(_number(rng)): numbers(rng) for _ in range(rng.randrange(4))}
    return rng.choice((dict, OrderedDict, lambda v: list(v.items()), lambda v: tuple(v.items())))(made)


def binaries(rng: random.Random) -> Any:
    return rng.choice((bytes, bytearray, lambda v: memoryview(bytearray(v))))(b"%d" % _number(rng))


def flat_maps(rng: random.Random) -> Any:
    return {str(_number(rng)): dt.datetime(2024, 1, 1) for _ in range(rng.randrange(3))}


COLUMNS = {
    "n": ("int", _number),
    "numbers": ("array<int>", numbers),
    "nested": ("array<array<int>>", lambda rng: _list(rng, numbers)),
    "one": ("struct<x: int, tags: array<int>>", structs),
    "flat": ("struct<x: int, y: int>", lambda rng: {"x": 1, "y": _number(rng)}),
    "many": ("array<struct<x: int, tags: array<int>>>", lists_of_structs),
    "map": ("map<string, array<int>>", maps),
    "times": ("map<string, timestamp>", flat_maps),
    "blob": ("binary", binaries),
    "blobs": ("array<binary>", lambda rng: _list(rng, binaries)),
}


def spoil(value: Any) -> None:
    """Changes all that can be changed, at every depth."""
    if isinstance(value, dict):
        for each in list(value.values()):
            spoil(each)
        value.clear()
    elif isinstance(value, (list, deque, tuple, set)):
        for each in list(value):
            spoil(each)
        if not isinstance(value, tuple):
            value.clear()
    elif isinstance(value, np.ndarray):
        value[:] = -1
    elif isinstance(value, array):
        del value[:]
    elif isinstance(value, (bytearray, memoryview)):
        value[:] = b"#" * len(value)
    elif isinstance(value, Fields) or type(value).__name__ == "Dataclass":
        for name in value.__dataclass_fields__:
            spoil(getattr(value, name))
            setattr(value, name, None)


def row_of(form: str, names: list[str], values: list[Any]) -> Any:
    if form == "dataclass":
        from dataclasses import make_dataclass

        return make_dataclass("Dataclass", names)(*values)
    forms: dict[str, Callable[[], Any]] = {
        "tuple": lambda: tuple(values),
        "list": lambda: list(values),
        "dict": lambda: dict(zip(names, values, strict=True)),
        "Row": lambda: Row(**dict(zip(names, values, strict=True))),
        "own row": lambda: make_row(names, values),
        "namedtuple": lambda: namedtuple("R", names)(*values),  # type: ignore[misc]
    }
    return forms[form]()


FORMS = ["tuple", "list", "dict", "Row", "own row", "namedtuple", "dataclass"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(30))
def test_no_change_after_the_yield_changes_a_row(form: str, seed: int) -> None:
    rng = random.Random(f"{form} {seed}")
    names = rng.sample(sorted(COLUMNS), rng.randint(1, 4))
    schema = arrow_schema(", ".join(f"{name} {COLUMNS[name][0]}" for name in names))
    want: list[Any] = []

    def fn(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        for _ in range(2):
            made = row_of(form, names, [COLUMNS[name][1](rng) for name in names])
            want.extend(RowEncoder(schema).batch([row_values(made, names)]).to_pylist())
            yield made
            spoil(made)

    operator = opened(ProcessOperator(fn, schema, name="p"), FakeServices())
    assert shown(operator.bundle(KEYS, DATA), schema) == want


def row_values(row: Any, names: list[str]) -> tuple[Any, ...]:
    if isinstance(row, dict):
        return tuple(row[name] for name in names)
    return tuple(row) if isinstance(row, (tuple, list)) else tuple(getattr(row, name) for name in names)


@pytest.mark.parametrize("value", [{"x": 1, "z": 2}, (1,), 7, "ab"])
def test_what_does_not_fit_is_refused_with_column_row_and_value(value: Any) -> None:
    schema = arrow_schema("one struct<x: int, tags: array<int>>")
    operator = opened(ProcessOperator(lambda k, r, c: [(value,)], schema, name="p"), FakeServices())
    with pytest.raises(InputError, match=r"column 'one'.*row 0 has"):
        RowEncoder(schema).batch(operator.bundle(KEYS[:1], DATA[:1]))


def test_columns_that_are_known_by_their_names_alone() -> None:
    kept: list[int] = []

    def fn(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        kept.append(row.i)
        yield row.i, kept

    operator = opened(ProcessOperator(fn, ["i", "h"], name="p"), FakeServices())
    assert shown(operator.bundle(KEYS, DATA), NESTED) == GROWN


def test_a_schema_of_plain_values_costs_no_copies() -> None:
    row = (1,)
    operator = opened(ProcessOperator(lambda k, r, c: [row], arrow_schema("i int"), name="p"), FakeServices())
    assert all(made is row for made in operator.bundle(KEYS, DATA))
