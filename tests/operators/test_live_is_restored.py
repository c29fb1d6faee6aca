"""What a user's function sees of its state is the same in an instance that lives and in one that was restored."""

from __future__ import annotations

import collections
import datetime as dt
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from state_values import VALUES, same
from surface_services import FakeServices

from clonos.errors import StateError
from clonos.operators.group_state import GroupStateOperator
from clonos.operators.process import ProcessOperator
from clonos.operators.types import arrow_schema
from clonos.storage.keyed_state import KeyedState
from clonos.values.grouping_keys import FoldedKey, key_of
from clonos.values.key_codec import pack, unpack
from clonos.values.state_codec import decode, disowned, encode, own
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica.instance_config import keys_of

OUTPUT = ["said"]
REPEATED = dt.datetime(2026, 11, 1, 1, 30)
Fn = Callable[[Any, Any, Any], Iterator[Any]]


def containers(value: Any) -> Iterator[int]:
    """The ids of everything in it that can be changed."""
    if isinstance(value, dict):
        for item in value.values():
            yield from containers(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from containers(item)
    if isinstance(value, dict | list | set | bytearray):
        yield id(value)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_a_copy_is_what_a_restore_gives(value: Any) -> None:
    """Also of a value that was restored: the way through the bytes is the identity after the first time."""
    kept = own(value)
    live, restored = disowned(kept), decode(encode(value))
    assert same(live, restored)
    assert repr(live) == repr(restored)  # sets in the same order
    assert same(disowned(own(live)), live)
    seen = list(containers(live))
    assert len(seen) == len(set(seen)) and not set(seen) & set(containers(value))


def counts(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    state = ctx.state
    state["n"] = state.get("n", 0) + 1
    yield (repr(state),)


def two_names(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """One list under two names: is it one in the next bundle?"""
    state = ctx.state
    if not state:
        state["a"] = state["b"] = []
    state["a"].append(row[0])
    yield (repr(state),)


SHARED: dict[str, list[Any]] = {}


def shared_between_keys(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """One list in the state of all keys that are new in a bundle."""
    state = ctx.state
    state.setdefault("seen", SHARED.setdefault("seen", [])).append(row[0])
    yield (repr(state),)


def one_dict_for_all(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """A default that every key is given and that each of them changes."""
    if not ctx.state:
        ctx.state = {"n": 0}
    kept.append(ctx.state)
    if len(kept) > 1:
        kept.pop(0)["n"] += 100  # the state of the bundle before, in place
    ctx.state["n"] += 1
    yield (repr(ctx.state),)


kept: list[dict[str, Any]] = []


def set_with_a_history(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    """Which items a set has had decides in which order it is iterated."""
    seen = ctx.state.setdefault("seen", set())
    if not seen:
        seen.add(8)
        seen.add(0)  # behind the other in this set, before it in one that is built in order
    yield (repr(list(seen)),)


def nan_is_nan(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    state = ctx.state
    if not state:
        state["x"] = state["y"] = math.nan
        state["d"] = {math.nan: 1}
    yield (repr([state["x"] in [state["y"]], state["d"].get(math.nan), state["d"].get(state["x"])]),)


def odd_scalars(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    state = ctx.state
    if not state:
        state |= {
            "z": -0.0,
            "d": Decimal("10.0"),
            "f": REPEATED.replace(fold=1),
            "i": np.int8(3),
            "t": (1, [2]),
        }
        state |= {
            "u": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            "b": bytearray(b"x"),
            "s": "\ud800",
            "n": 2**80,
        }
    state["t"][1].append(row[0])
    state["b"] += b"y"
    yield (repr(state),)


FUNCTIONS: list[Fn] = [
    counts,
    two_names,
    shared_between_keys,
    one_dict_for_all,
    set_with_a_history,
    nan_is_nan,
    odd_scalars,
]


def story(
    fn: Fn, path: Path, *, cache: int, restores: set[int], flushes: set[int] = frozenset()
) -> list[Any]:  # type: ignore[assignment]
    """What the function says, bundle by bundle, where the instance is restored or its state is written in between."""
    kept.clear()
    rng = Random(3)
    services: Any = FakeServices()
    state = KeyedState(str(path / "0"), cache_entries=cache)
    said: list[Any] = []
    for number in range(12):
        SHARED.clear()
        services.state = state
        operator = ProcessOperator(fn, OUTPUT, name="op")
        operator.open(services)
        rows = [(rng.randint(0, 40),) for _ in range(rng.randint(1, 9))]
        keys = [(row[0] % 7,) for row in rows]
        said.append(operator.bundle(keys, rows))
        if number in flushes:
            state.flush()
        if number in restores:
            kept.clear()
            state.checkpoint(str(path / f"cp{number}"))
            state.close()
            state = KeyedState(str(path / f"cp{number}"), cache_entries=cache)
    state.close()
    return said


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_a_function_sees_the_same_state_live_and_restored(fn: Fn, tmp_path: Path) -> None:
    """Whatever is cached, whenever it is written, wherever it is restored."""
    live = story(fn, tmp_path / "live", cache=1000, restores=set())
    assert story(fn, tmp_path / "restored", cache=1000, restores=set(range(12))) == live
    assert story(fn, tmp_path / "once", cache=1000, restores={5}) == live
    assert story(fn, tmp_path / "small", cache=4, restores=set()) == live
    assert story(fn, tmp_path / "written", cache=1000, restores=set(), flushes={1, 4, 7}) == live


def test_pieces_of_a_bundle_are_one_bundle_to_the_state() -> None:
    """One that is run record by record, in quarantine, leaves the state that it left when it was run as one."""
    rows = [(n,) for n in range(6)]
    keys = [(n % 2,) for n in range(6)]
    said: list[list[Any]] = []
    for pieces in (False, True):
        services = FakeServices()
        operator = ProcessOperator(two_names, OUTPUT, name="op")
        operator.open(services)
        if pieces:
            with operator.pieces():
                made = [out for key, row in zip(keys, rows) for out in operator.bundle([key], [row])]
                assert operator.kept((1,)) == {pack((1,)): {"a": [1, 3, 5], "b": [1, 3, 5]}}
                assert not services.state.data
        else:
            made = operator.bundle(keys, rows)
        said.append(made + operator.bundle(keys, rows))
    assert said[0] == said[1]


class Custom:
    pass


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({None, 1}, "a set with None in it cannot be kept"),
        ({(1, math.nan)}, r"a set with \(1, nan\) in it cannot be kept"),
        (frozenset({Decimal("NaN")}), "a frozenset with Decimal"),
        (collections.OrderedDict(a=1), "type collections.OrderedDict cannot be kept"),
        (np.zeros(3), "type numpy.ndarray cannot be kept"),
        (Custom(), "Custom cannot be kept"),
        ([memoryview(b"x")], "type memoryview cannot be kept"),
    ],
)
def test_what_cannot_be_the_same_is_refused_when_the_bundle_ends(
    value: Any, says: str, tmp_path: Path
) -> None:
    """Not when it happens to be written: the key is named, and what to do."""
    services: Any = FakeServices()
    services.state = KeyedState(str(tmp_path / "db"))

    def fn(key: Any, row: Any, ctx: Any) -> None:
        ctx.state["v"] = value

    operator = ProcessOperator(fn, OUTPUT, name="op")
    operator.open(services)
    with pytest.raises(StateError, match=rf"the state of key \('a',\): .*{says}") as caught:
        operator.bundle([("a",)], [(1,)])
    assert caught.value.hint or "nested" in str(caught.value) or "memoryview" in str(caught.value)
    services.state.close()


# ----------------------------------------------------------------------- keys


def test_the_two_instants_of_a_repeated_hour_are_two_keys_everywhere() -> None:
    schema = arrow_schema("k timestamp, v int")
    node = NodeSpec(number=2, name="op", input=schema, key=(0,))
    early, late = REPEATED, REPEATED.replace(fold=1)
    keys = keys_of(node, True)([(early, 1), (late, 2), (early, 3)])
    assert [type(key) for key in keys] == [tuple, FoldedKey, tuple]
    assert len(set(keys)) == 2 and keys[0] == keys[2] != keys[1] and keys.index(keys[1]) == 1
    assert len({pack(key) for key in keys}) == 2
    for key in keys:
        back = unpack(pack(key))
        assert back == key and type(back) is type(key) and back[0].fold == key[0].fold
    assert len(set(keys_of(node, False)([(early, 1), (late, 2)]))) == 1  # state of an older version
    assert decode(encode({"key": keys[1]})) == {"key": (late,)}  # a user may keep it

    services = FakeServices()
    operator = ProcessOperator(counts, OUTPUT, name="op")
    operator.open(services)
    said = operator.bundle(keys, [(early, 1), (late, 2), (early, 3)])
    assert said == [("{'n': 1}",), ("{'n': 1}",), ("{'n': 2}",)]


def test_frames_are_of_one_instant_each() -> None:
    schema = arrow_schema("k timestamp, v int")

    def fn(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        (frame,) = list(frames)
        n = (state.get[0] if state.exists else 0) + len(frame)
        state.update((n,))
        import pandas as pd

        yield pd.DataFrame({"n": [n]})

    services = FakeServices()
    operator = GroupStateOperator(
        fn, input=schema, output="n long", state="n long", name="op", tz="America/New_York"
    )
    operator.open(services)
    rows = [(REPEATED, 1), (REPEATED.replace(fold=1), 2), (REPEATED, 3)]
    assert operator.bundle([key_of(row[:1]) for row in rows], rows) == [(2,), (1,)]


def test_keys_that_are_as_they_were_have_the_bytes_that_they_had() -> None:
    assert pack((REPEATED,)).hex() == pack((REPEATED.replace(fold=1),)).hex()
    assert pack(key_of((REPEATED,))) == pack((REPEATED,))
    assert pack(key_of(("a", 1, None))).hex() == "93a16101c0"


# -------------------------------------------------------------------- hashes


@pytest.mark.parametrize("seed", ["random", "7", "0", None])
def test_a_replica_server_runs_with_one_hash_seed(root: Path, seed: str | None) -> None:
    program = (
        "from clonos_standby.server.replica_server import fix_hash_seed\nfix_hash_seed()\n"
        "print(*{'a', 'b', 'c', 'd', 'e', b'f'})"
    )
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    surroundings |= {"PYTHONPATH": str(root)} | ({"PYTHONHASHSEED": seed} if seed is not None else {})
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True, timeout=240
        ).stdout
        for env in (surroundings, {**surroundings, "PYTHONHASHSEED": "0"})
    }
    assert len(said) == 1
