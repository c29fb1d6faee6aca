"""Services for tests of the surface: a real dict, a real queue, a clock that stands still until told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from clonos.errors import Where
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.operator import Operator
from clonos.sim.fake_services import Timers
from clonos.values.state_codec import decode, disowned, encode


@pytest.fixture(autouse=True, params=["cached", "cold"])
def store_kinds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For modules that import it: every test with a store that gives the same object again, and one that never does."""
    monkeypatch.setattr(DictState, "cold", request.param == "cold")


START = 1_700_000_000_000_000


class DictState:
    """A dict; *cold*, it gives nothing back but what the real store's bytes say, as after a recovery."""

    cold = False

    def __init__(self) -> None:
        self.data: dict[bytes, Any] = {}
        self.writes: list[bytes] = []

    def get(self, key: bytes) -> Any | None:
        value = self.data.get(key)
        return decode(encode(value)) if self.cold and value is not None else value

    def load(self, key: bytes) -> Any | None:
        value = self.data.get(key)
        return None if value is None else disowned(value)

    def save(self, key: bytes, value: Any) -> None:
        self.writes.append(key)
        self.data[key] = disowned(value)

    def put(self, key: bytes, value: Any) -> None:
        self.writes.append(key)
        self.data[key] = decode(encode(value)) if self.cold else value

    def touch(self, key: bytes) -> None:
        assert key in self.data
        self.writes.append(key)

    def delete(self, key: bytes) -> None:
        self.data.pop(key, None)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        return iter([(k, self.data[k]) for k in sorted(self.data) if k.startswith(prefix)])


class FakeServices:
    def __init__(self, seed: int = 7) -> None:
        self.state = DictState()
        self.timers = Timers()
        self.event_timers = Timers()
        self.random = Random(seed)
        self.watermark: int | None = None
        self.epoch_watermark: int | None = None
        self.input_sets = None
        self.has_event_time = True
        self.time = START
        self.late = 0
        self.given_rows: GivenRows | None = None
        self.clock_reads = 0
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.replies: list[Any] | None = None  # what `call` gives instead of calling, as at replay

    def clock(self) -> int:
        self.clock_reads += 1
        return self.time

    def exact_clock(self) -> int:
        self.time += 1
        return self.time

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.replies is not None:
            return self.replies.pop(0)
        result = fn(*args, **kwargs)
        self.calls.append(("call", args))
        return result

    def effect(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> Any:
        self.calls.append((key, args))
        return fn(*args, **kwargs)

    def drop_late(self, records: int) -> None:
        self.late += records

    def where(self, row: int | None) -> Where:
        return Where(operator="op", instance=0, position=row)


def opened(operator: Any, services: FakeServices) -> Any:
    checked: Operator = operator
    checked.open(services)
    return operator


def advance(operator: Any, services: FakeServices, microseconds: int) -> list[tuple[Any, ...]]:
    """Let processing time pass and fire what is due."""
    services.time += microseconds
    return list(operator.timers(services.timers.pop_due(services.time), False))


def advance_watermark(operator: Any, services: FakeServices, to: int) -> list[tuple[Any, ...]]:
    services.watermark = to
    return list(operator.timers(services.event_timers.pop_due(to), True))
