"""Real values through the real codecs: the ledger with a user's keys, rows and state instead of tame ones.

Keys come in the many forms that a function may give the same value in, and two of them are the instants of a repeated
hour. Rows are sent as Arrow arrays, and digested as such. State goes through the bundle's view of it, the state cache
(a small one) and its codec into bytes, and holds what a live object and a restored one might differ in: aliases, a set
with a history, NaN, -0.0, an exact Decimal, a numpy scalar. What the function sees of them is in its output, so the
ledger and the checkers of rows and state tell.
"""

from __future__ import annotations

import datetime as dt
import math
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from clonos.protocol.destination import KeyColumn, KeyKind, Router, conform, route_by_key
from clonos.protocol.engine.given_rows import rows_told
from clonos.protocol.engine.instance import Row
from clonos.protocol.ids import NodeId
from clonos.protocol.versions.state_evolution import Fields
from clonos.sim.operator import KEYS, MIGRATES, Ledger, Outside, Uses, held_by, key_at
from clonos.sim.records import Rows
from clonos.values.bundle_state import BundleState
from clonos.values.digest import digest_of
from clonos.values.grouping_keys import key_of
from clonos.values.key_codec import pack
from clonos.values.state_cache import StateCache

ZONE: Final = ZoneInfo("America/New_York")
_KINDS: Final = tuple(KeyKind)
_ARROW: Final = {
    KeyKind.STRING: pa.string(),
    KeyKind.BOOLEAN: pa.bool_(),
    KeyKind.INTEGER: pa.int64(),
    KeyKind.DECIMAL: pa.decimal128(38, 0),
    KeyKind.DATE: pa.date32(),
    KeyKind.TIMESTAMP: pa.int64(),
    KeyKind.BINARY: pa.binary(),
}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_REPEATED: Final = dt.datetime(2026, 11, 1, 1, 30)  # an hour that clocks in the zone show twice


class Text(str):
    """A string that says something else than it holds."""

    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


def key_kind(seed: int, node: NodeId) -> KeyKind:
    return _KINDS[(seed + node) % len(_KINDS)]


def key_value(kind: KeyKind, node: NodeId, record: int) -> Any:
    """The key under which a node sees a record, as its receiver reads it."""
    number = zlib.crc32(b"%d:%d" % (node, record)) % KEYS
    values: dict[KeyKind, Any] = {
        KeyKind.STRING: None if number == 0 else f"k{number}",
        KeyKind.BOOLEAN: number % 2 == 0,
        KeyKind.INTEGER: number * 1_000_003,
        KeyKind.DECIMAL: Decimal(number * 10),
        KeyKind.DATE: dt.date(2026, 11, 1 + number),
        KeyKind.TIMESTAMP: _REPEATED.replace(fold=number)
        if number < 2
        else _REPEATED + dt.timedelta(days=number),
        KeyKind.BINARY: bytes([number]),
    }
    return values[kind]


def forms(kind: KeyKind, value: Any) -> tuple[Any, ...]:
    """What a function may give for it."""
    if value is None:
        return (None,)
    if kind is KeyKind.STRING:
        return (value, Text(value), np.str_(value))
    if kind is KeyKind.BOOLEAN:
        return (value, np.bool_(value))
    if kind is KeyKind.INTEGER:
        return (value, np.int64(value), float(value), Decimal(value))
    if kind is KeyKind.DECIMAL:
        return (value, value.quantize(Decimal("0.0")), value.normalize(), int(value))
    if kind is KeyKind.DATE:
        return (value, dt.datetime.combine(value, dt.time(5)))
    if kind is KeyKind.TIMESTAMP:
        aware = value.replace(tzinfo=ZONE)
        return (value, aware, aware.astimezone(dt.UTC))
    return (value, bytearray(value), memoryview(value))


class SentRows(Rows):
    """Rows as the receiver reads them, and the digest of what it reads."""

    __slots__ = ()

    def __init__(self, kind: KeyKind, rows: list[Row]) -> None:
        given = [row[0] for row in rows]
        if kind is KeyKind.TIMESTAMP:
            column = pa.array([conform(kind, value, ZONE) for value in given], _ARROW[kind])
            received = [_wall(instant) for instant in column.to_pylist()]
        else:
            column = pa.array(given, _ARROW[kind])
            received = column.to_pylist()
        rest = [pa.array([row[1] for row in rows]), pa.array([repr(row[2]) for row in rows])]
        self.rows = [(key, *row[1:]) for key, row in zip(received, rows, strict=True)]
        self.digest = digest_of([column, *rest])


def _wall(instant: int) -> dt.datetime:
    moment = _EPOCH + dt.timedelta(microseconds=instant)
    return moment.astimezone(ZONE).replace(tzinfo=None)


def router(kind: KeyKind, parallelism: int) -> Router:
    return route_by_key([KeyColumn(0, kind)], parallelism, zone=ZONE)


def keys_of(rows: list[Row]) -> list[Row]:
    return [key_of(row[:1]) for row in rows]


class InMemory:
    """What is behind a state cache: what a snapshot holds."""

    def __init__(self, data: dict[bytes, bytes] | None = None) -> None:
        self.data = dict(data or {})

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        for key, data in changes.items():
            if data is None:
                self.data.pop(key, None)
            else:
                self.data[key] = data

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter([(key, data) for key, data in sorted(self.data.items()) if key.startswith(prefix)])


class RealState(StateCache):
    """The state of one instance."""

    def __init__(self, cache_entries: int, data: dict[bytes, bytes] | None = None) -> None:
        self.memory = InMemory(data)
        super().__init__(self.memory, cache_entries=cache_entries)


class RealLedger(Ledger):
    """The ledger over real keys and real state."""

    def __init__(
        self,
        node: NodeId,
        target: NodeId,
        outside: Outside,
        uses: Uses,
        version: str = "1",
        migrates: frozenset[str] = MIGRATES,
        *,
        kind: KeyKind,
    ) -> None:
        super().__init__(node, target, outside, uses, version, migrates)
        self._kind = kind
        self._states = BundleState()
        self._before: list[dict[str, Any]] = []
        self._keys: dict[str, Row] = {}
        self._in_pieces = False

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        if self._in_pieces:
            return self._piece(keys, rows)
        with self._whole():
            return self._piece(keys, rows)

    def pieces(self) -> AbstractContextManager[None]:
        return self._whole()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        self._begin()
        self._in_pieces = True
        yield
        self._in_pieces = False
        self._states.keep(self._services.state)

    def _piece(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        self._keys |= {key_at(self._node, row[1]): key for key, row in zip(keys, rows, strict=True)}
        return super().bundle(keys, rows)

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        self._begin()
        produced: list[Row] = []
        tell = rows_told(self._services)
        for _, data, _ in due:
            key = data.decode()
            self._keys = {key: key_of(self._services.state.load(b"key of " + data)["key"])}
            produced += self._let_out(key, self._services.random.getrandbits(30))
            if tell is not None:
                tell(len(produced))
        self._states.keep(self._services.state)
        return produced

    def migrate(self, before: str, moved: Mapping[str, Fields]) -> None:
        kept = self._services.state
        for key, state in list(kept.scan()):
            if held_by(before) in state:
                kept.save(key, {**state, self._held: state.pop(held_by(before))})

    def _begin(self) -> None:
        for state in self._before:  # what the function still holds of the bundle before
            state["changed behind it"] = True
        self._before.clear()
        self._keys = {}

    def _state_of(self, key: str) -> dict[str, Any]:
        loaded = self._states.loaded.get(key)
        if loaded is not None:
            return loaded
        state = self._states.load(self._services.state, key, self._data(key))
        if "n" not in state:
            state.setdefault(self._held, [])
        name = b"key of " + key.encode()
        if self._services.state.load(name) is None:
            self._services.state.save(name, {"key": self._keys[key]})
        return state

    def _data(self, key: str) -> bytes:
        """Several keys of the ledger are one boolean, but every other type has a value for each."""
        data = pack(self._keys[key])
        return data + key.encode() if isinstance(self._keys[key][0], bool) else data

    def _routing_key(self, record: int, draw: int) -> Any:
        given = forms(self._kind, key_value(self._kind, self._target, record))
        return given[draw % len(given)]

    def _detail(self, key: str, record: int, draw: int) -> str:
        state, flat = self._state_of(key), self._flat(key)
        return f"{super()._detail(key, record, draw)} {_oddities(state, record)} {sorted(flat.items())}"

    def _flat(self, key: str) -> dict[str, Any]:
        """A second state, all of whose values are scalars."""
        name = f"flat {key}"
        flat = self._states.loaded.get(name)
        if flat is None:
            flat = self._states.load(self._services.state, name, b"flat " + self._data(key))
            self._before.append(flat)
        flat["zero"] = flat.get("zero", -0.0)
        flat["n"] = int(flat.get("n", 0)) + 1
        return flat


def _oddities(state: dict[str, Any], record: int) -> str:
    """Change what is odd in the state; what the function sees of it."""
    odd = state.get("odd")
    if odd is None:
        one: list[int] = []
        odd = state["odd"] = {"one": one, "other": one, "nan": [math.nan, math.nan], "set": {8}}
        odd |= {"exact": Decimal("10.0"), "zone": _REPEATED.replace(tzinfo=ZONE, fold=1), "small": np.int8(3)}
        odd["set"].add(0)  # behind 8 in this set, before it in one that is built in order
    odd["one"].append(record)
    if len(odd["one"]) > 3:
        odd["one"].clear()
    odd["set"] ^= {8 * (record % 3), 1}
    seen = (list(odd["set"]), odd["other"], odd["nan"][0] in odd["nan"][1:])
    return repr((*seen, odd["exact"], odd["zone"].utcoffset(), type(odd["small"]).__name__))
