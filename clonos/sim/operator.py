"""The user function: a ledger at every node, out of everything that a replay could get wrong.

Each record that a node lets out is the next link of its key's chain (`clonos.testing.ledger`), whose hash covers a
random draw, a clock, perhaps an exact clock, the answer of a service that never answers twice alike, and so the order
in which records came. Some records are held back, and let out by a later record, a processing-time timer or event
time, so that determinants of steps without output matter too. A record carries the links of all nodes it has passed;
the oracle judges every node's chain by what the sinks made visible, and nothing else.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from clonos.errors import StateError, Where
from clonos.protocol.destination import KeyColumn, KeyKind
from clonos.protocol.engine.given_rows import rows_told
from clonos.protocol.engine.instance import Row
from clonos.protocol.engine.task_scheduler import CallRequest, TaskScheduler, Together, lanes
from clonos.protocol.event_time import is_late
from clonos.protocol.ids import NodeId
from clonos.protocol.operator import Services
from clonos.protocol.side_output import MAIN, side_row_type
from clonos.protocol.versions.state_evolution import Fields
from clonos.sim.calls import CallsUnderWay
from clonos.sim.event_time import moment_of
from clonos.sim.fake_services import Refused
from clonos.sim.records import Tag
from clonos.sim.side_outputs import output_at
from clonos.testing.ledger import Entry, extend

KEYS = 5
_WAYS_APART = 1_000_000
_CHANGED = ("changed in place",)


def key_at(node: NodeId, record: int) -> str:
    """The key under which a node sees a record."""
    return f"{node}k{zlib.crc32(b'%d:%d' % (node, record)) % KEYS}"


def routing_key(node: NodeId, record: int) -> Any:
    """The same key as a value of one of the types that a key may have; which one, the node decides."""
    number = zlib.crc32(b"%d:%d" % (node, record)) % KEYS
    day = dt.datetime(2026, 11, 1 + number, 12)
    kinds: tuple[Any, ...] = (
        key_at(node, record),
        number * 1_000_003,
        number % 2 == 0,
        day,
        day.replace(tzinfo=dt.UTC),
        day.date(),
        Decimal(number),
        bytes([number]),
        None if number == 0 else str(number),
    )
    return kinds[node % len(kinds)]


_KEY_KINDS = (
    KeyKind.STRING,
    KeyKind.INTEGER,
    KeyKind.BOOLEAN,
    KeyKind.TIMESTAMP,
    KeyKind.TIMESTAMP,
    KeyKind.DATE,
    KeyKind.DECIMAL,
    KeyKind.BINARY,
    KeyKind.STRING,
)


def key_column(node: NodeId) -> KeyColumn:
    """The column of `routing_key`."""
    return KeyColumn(0, _KEY_KINDS[node % len(_KEY_KINDS)])


def is_late_here(record: int, epoch_watermark: int | None) -> bool:
    """Event time is in milliseconds here, for lateness is."""
    return is_late(moment_of(record) * 1000, None if epoch_watermark is None else epoch_watermark * 1000)


@dataclass(frozen=True)
class Outside:
    """What the function's closures reach, and who watches it consume."""

    ask: Callable[[], int]
    act: Callable[[str, int, int], None]
    consumed: Callable[[Row, Where], None]
    is_poison: Callable[[int], bool]
    die: Callable[[int, Tag], None]
    entropy: Callable[[], int]
    ends_next: Callable[[int], int]
    """Which of so many calls that are under way."""


@dataclass(frozen=True)
class Uses:
    """Which services the function uses."""

    calls: bool
    effects: bool
    timers: bool
    event_time: bool
    impure: bool
    lateness: bool = False
    per_epoch: bool = False
    ways: tuple[tuple[NodeId, ...], ...] = ((),)
    """By which operators records come to the node."""
    side_output: bool = False
    """Some records leave by one."""
    calls_at_once: bool = False


MIGRATES = frozenset({""})


class Ledger:
    """One instance of the function. Rows are (key at the next node, record, links so far[, tag])."""

    form = "process"

    def __init__(
        self,
        node: NodeId,
        target: NodeId,
        outside: Outside,
        uses: Uses,
        version: str = "1",
        migrates: frozenset[str] = MIGRATES,
    ) -> None:
        self._version = version
        self.migrates = migrates
        self._held = held_by(version)
        self._node = node
        self._target = target
        self._outside = outside
        self._uses = uses
        self._gathered: list[Row] = []
        self.per_epoch = uses.per_epoch
        self.record_at_a_time = not uses.calls_at_once

    def open(self, services: Services) -> None:
        self._services: Any = services  # its state is a plain dict here
        self._scheduler = TaskScheduler[str](
            services, CallsUnderWay(self._outside.ends_next), lambda key: None
        )

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        return {}

    def migrate(self, before: str, moved: Mapping[str, Fields]) -> None:
        """Each version keeps what it holds back under a name of its own."""
        for key, state in self._services.state.items():
            self._check(key, state, before)
            state[self._held] = state.pop(held_by(before))

    @staticmethod
    def _check(key: str, state: dict[str, Any], version: str) -> None:
        if held_by(version) not in state:
            raise StateError(f"the state of {key!r} is not of version {version}: {sorted(state)}")

    def close(self) -> None:
        """Nothing is held."""

    def pieces(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        if self._uses.calls_at_once:
            return self._at_once(rows)
        produced: list[Row] = []
        tell = rows_told(self._services)
        for index, row in enumerate(rows):
            if self._outside.is_poison(row[1]):
                self._poisoned(row)
            self._outside.consumed(row, self._services.where(index))
            if self.per_epoch:
                self._gathered.append(row)
            else:
                produced += self._one(key_at(self._node, row[1]), row)
            if tell is not None:
                tell(len(produced))
        return produced

    def _at_once(self, rows: list[Row]) -> list[Row]:
        """Keys at the same time, the records of one in their order, as an async function has them."""
        made: list[list[Row]] = [[] for _ in rows]
        for index, row in enumerate(rows):
            self._outside.consumed(row, self._services.where(index))

        async def one_by_one(key: str, lane: list[int]) -> None:
            for index in lane:
                row = rows[index]
                answers = [await CallRequest(self._answer, (), {}) for _ in range(row[1] % 3)]
                if row[1] % 4 == 0:
                    parts = (CallRequest(self._answer, (), {}), CallRequest(self._answer, (), {}))
                    answers += await Together(parts, returns_exceptions=False)
                made[index] = self._one(key, row, "".join(f" answered {each}" for each in answers))

        keys = [key_at(self._node, row[1]) for row in rows]
        self._scheduler.run((key, one_by_one(key, lane)) for key, lane in lanes(keys).items())
        return [row for each in made for row in each]

    def _answer(self) -> str:
        try:
            return str(self._outside.ask())
        except Refused as error:
            return f"refused: {error}"

    def gathered(self) -> list[Row]:
        held, self._gathered = self._gathered, []
        keyed = sorted([(key_at(self._node, row[1]), row) for row in held], key=lambda one: one[0])
        return [out for key, row in keyed for out in self._one(key, row)]

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        produced: list[Row] = []
        tell = rows_told(self._services)
        for _, key, _ in due:
            produced += self._let_out(key.decode(), self._services.random.getrandbits(30))
            if tell is not None:
                tell(len(produced))
        return produced

    def _poisoned(self, row: Row) -> None:
        """Some die at once, some after they have made a part of their step stable."""
        record = row[1]
        if self._uses.calls and record % 2:
            self._ask()
        if self._uses.effects and record % 3:
            key = key_at(self._node, record)
            self._services.effect(self._outside.act, (key, record, 0), {}, f"{self._node}-{record}")
        self._outside.die(record, row[3])

    def _one(self, key: str, row: Row, note: str = "") -> list[Row]:
        services = self._services
        state = self._state_of(key)
        self._check(key, state, self._version)
        late = self._uses.lateness and is_late_here(row[1], services.epoch_watermark)
        state[self._held].append((row[1], tuple(row[2]), note + (" late" if late else "")))
        if isinstance(row[2], list):
            if _CHANGED in row[2]:
                raise StateError(f"record {row[1]} comes as this function has left it before")
            row[2].append(_CHANGED)  # as a function may what it is given
        draw = services.random.getrandbits(30)
        if self._uses.timers and draw % 4 == 0:
            services.timers.set(services.clock() + draw % 4000, key.encode())
            if self._uses.event_time:
                services.event_timers.set(moment_of(row[1]), key.encode())
            return []
        return self._let_out(key, draw)

    def _let_out(self, key: str, draw: int) -> list[Row]:
        services = self._services
        state = self._state_of(key)
        self._check(key, state, self._version)
        held, state[self._held] = state[self._held], []
        produced: list[Row] = []
        for record, links, note in held:
            came_as = identity(record, self._uses.ways.index(tuple(link[0] for link in links)))
            detail = self._detail(key, came_as, draw) + note
            entry = extend(state, key, str(came_as), draw, services.clock(), detail)
            link = (self._node, entry.n, entry.draw, entry.at, entry.prev_hash, entry.hash, detail)
            row: Row = (self._routing_key(record, draw), record, (*links, link))
            output = output_at(self._node, record) if self._uses.side_output else MAIN
            produced.append(row if output == MAIN else side_row_type(output)(row))
            draw = services.random.getrandbits(30)
        return produced

    def _state_of(self, key: str) -> dict[str, Any]:
        state: dict[str, Any] = self._services.state.setdefault(key, {self._held: []})
        return state

    def _routing_key(self, record: int, draw: int) -> Any:
        return routing_key(self._target, record)

    def _detail(self, key: str, record: int, draw: int) -> str:
        """What besides draw and clock goes into the link."""
        services, uses = self._services, self._uses
        parts = [f"version {self._version}"] if self._version != "1" else []
        if draw % 3 == 0:
            parts.append(f"exact {services.exact_clock()}")
        if uses.event_time and draw % 2 == 0:
            parts.append(f"at {services.watermark}")
        if uses.calls and draw % 5 == 0:
            parts.append(self._ask())
        if uses.effects and draw % 7 == 0:
            services.effect(self._outside.act, (key, record, draw), {}, f"{self._node}-{record}")
        if uses.impure and draw % 2 == 0:
            parts.append(f"secret {self._outside.entropy()}")
        return " ".join(parts)

    def _ask(self) -> str:
        try:
            return str(self._services.call(self._outside.ask))
        except Refused as error:
            return f"refused: {error}"


def held_by(version: str) -> str:
    return "held" if version == "1" else f"held {version}"


def identity(record: int, way: int) -> int:
    """What a node knows a record by that came to it by its way number `way`."""
    return record + way * _WAYS_APART


def entry_of_link(record: int, link: tuple[Any, ...], way: int) -> Entry:
    """The ledger's own form of a link of a node to which the record came by its way number `way`."""
    node, n, draw, at, before, digest, detail = link
    return Entry(key_at(node, record), n, str(identity(record, way)), draw, at, before, digest, detail)
