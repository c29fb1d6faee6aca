"""State that another version wrote is brought up to date: every key, in every form; timers and times to live stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from surface_services import FakeServices

from clonos.errors import UserFunctionError
from clonos.operators.group_state import GroupStateOperator
from clonos.operators.process import ProcessOperator
from clonos.operators.transform_with_state import TransformWithStateOperator
from clonos.operators.types import arrow_schema
from clonos.storage.keyed_state import KeyedState
from clonos.values.key_codec import pack

IN = arrow_schema("k string, n bigint")
KEYS = 300


def process(migrate: Any) -> ProcessOperator:
    return ProcessOperator(lambda key, row, ctx: None, IN, name="op", migrate=migrate)


def test_every_key_is_migrated_also_those_that_are_not_cached(tmp_path: Path) -> None:
    services = FakeServices()
    services.state = state = KeyedState(str(tmp_path), cache_entries=16)
    for number in range(KEYS):
        state.save(pack((number,)), {"n": number, "seen": {1, 2}})

    def migrate(kept: dict[str, Any], version: str) -> dict[str, Any]:
        assert version == "1"
        kept["n"] += 1000
        return {} if kept["n"] == 1007 else kept

    operator = process(migrate)
    operator.open(services)
    operator.migrate("1", {})
    found = {key: state.load(key) for key, _ in state.scan(b"")}
    assert found == {
        pack((number,)): {"n": number + 1000, "seen": {1, 2}} for number in range(KEYS) if number != 7
    }


def test_without_a_migration_state_stays_as_it_is() -> None:
    services = FakeServices()
    services.state.save(pack(("a",)), {"n": 1})
    operator = process(None)
    operator.open(services)
    operator.migrate("1", {})
    assert services.state.load(pack(("a",))) == {"n": 1}


@pytest.mark.parametrize("migrate", [lambda kept, version: 1, lambda kept, version: kept["gone"]])
def test_a_migration_that_fails_is_named(migrate: Any) -> None:
    services = FakeServices()
    services.state.save(pack(("a",)), {"n": 1})
    operator = process(migrate)
    operator.open(services)
    with pytest.raises(UserFunctionError, match=r"migrate of 'op' failed for state written by version '1'"):
        operator.migrate("1", {})


def test_group_state_is_migrated_and_its_timeout_stays() -> None:
    services = FakeServices()
    services.state.put(pack(("a",)), [(4,), 77])
    services.state.put(pack(("b",)), [None, 78])
    operator = GroupStateOperator(
        lambda key, frames, state: iter(()),
        input=IN,
        output=IN,
        state="total double, n int",
        timeout="ProcessingTimeTimeout",
        name="op",
        migrate=lambda kept, version: (kept[0] * 1.5, 1),
    )
    operator.open(services)
    operator.migrate("1", {})
    assert services.state.get(pack(("a",))) == [(6.0, 1), 77]
    assert services.state.get(pack(("b",))) == [None, 78]


class Processor:
    """Three variables, one of them with a time to live."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n double", 1000)
        self.items = handle.getListState("items", "n double")
        self.map = handle.getMapState("map", "k string", "n double")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:
        yield from ()

    def close(self) -> None:
        """Nothing is held."""


def test_state_variables_are_migrated_value_by_value() -> None:
    services = FakeServices()
    key = pack(("a",))
    before = {
        pack("value") + key: [(1,), 99],
        pack("items") + key: [(1,), (2,)],
        pack("map") + key: {("x",): (3,)},
    }
    for slot, kept in before.items():
        services.state.put(slot, kept)

    def half(kept: tuple[int], version: str) -> tuple[float]:
        assert version == "7"
        return (kept[0] / 2,)

    operator = TransformWithStateOperator(
        Processor(),
        input=IN,
        output=IN,
        time_mode="ProcessingTime",
        name="op",
        migrate={"value": half, "items": half, "map": half},
    )
    operator.open(services)
    operator.migrate("7", {})
    assert [services.state.get(slot) for slot in before] == [
        [(0.5,), 99],
        [(0.5,), (1.0,)],
        {("x",): (1.5,)},
    ]


def test_what_a_processor_declares_is_known_without_running_it() -> None:
    operator = TransformWithStateOperator(
        Processor(), input=IN, output=IN, time_mode="ProcessingTime", name="op"
    )
    assert [(one.name, one.kind, one.ttl) for one in operator.declared()] == [
        ("value", "value", 1_000_000),
        ("items", "list", None),
        ("map", "map", None),
    ]


def test_moved_fields_are_kept_by_their_names() -> None:
    """Of every shape, with their expiry; what is new is null, and values from before the last fields were added are
    shorter. A function that was given for a variable goes before."""

    class Moved(Processor):
        def init(self, handle: Any) -> None:
            self.value = handle.getValueState("value", "x double, n long, new string", 1000)
            self.items = handle.getListState("items", "n long")
            self.map = handle.getMapState("map", "k string", "x double, n long")
            self.other = handle.getValueState("other", "x double, n long")

    services = FakeServices()
    key = pack(("a",))
    before = {
        pack("value") + key: [(1, 2.5, "gone"), 99],
        pack("items") + key: [(1, 2.5), (2,)],
        pack("map") + key: {("k",): (3, 4)},
        pack("other") + key: (1, 2.5),
    }
    for slot, kept in before.items():
        services.state.put(slot, kept)
    operator = TransformWithStateOperator(
        Moved(),
        input=IN,
        output=IN,
        time_mode="ProcessingTime",
        name="op",
        migrate={"other": lambda kept, version: (kept[0] * 10.0, 7)},
    )
    operator.open(services)
    moved = {
        "value": ("n", "x", "old"),
        "items": ("n", "x"),
        "map": ("n", "x"),
        "other": ("n", "x"),
        "deleted": ("n",),
    }
    operator.migrate("1", moved)
    assert [services.state.get(slot) for slot in before] == [
        [(2.5, 1, None), 99],
        [(1,), (2,)],
        {("k",): (4.0, 3)},
        (10.0, 7),
    ]


def test_moved_fields_of_a_group_state_are_kept_by_their_names() -> None:
    services = FakeServices()
    services.state.put(pack(("a",)), [(4, "gone", 1.5), 77])
    services.state.put(pack(("b",)), [None, 78])
    operator = GroupStateOperator(
        lambda key, frames, state: iter(()),
        input=IN,
        output=IN,
        state="x double, n long",
        timeout="ProcessingTimeTimeout",
        name="op",
    )
    operator.open(services)
    operator.migrate("1", {"": ("n", "s", "x")})
    assert services.state.get(pack(("a",))) == [(1.5, 4), 77]
    assert services.state.get(pack(("b",))) == [None, 78]
