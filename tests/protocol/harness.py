"""One instance on a bench: programs for rows, a nature that never answers twice alike, and all that comes out."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from clonos.protocol.destination import KeyColumn, KeyKind, Reader, Routing, route_by_key
from clonos.protocol.engine.channel_watermarks import EventInput
from clonos.protocol.engine.instance import (
    Action,
    Bundle,
    Emit,
    Instance,
    InstanceConfig,
    InstanceSnapshot,
    Persist,
    Row,
)
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.versions.programs import Programs
from clonos.sim.fake_services import Outcomes, Refused, Timers
from clonos.sim.records import Rows

ORIGIN = Origin(2, 0)
USES = (
    "clock",
    "exact",
    "draw",
    "call",
    "refused",
    "drawing call",
    "effect",
    "refused effect",
    "timer",
    "state",
    "emit",
    "nothing",
)


class Program:
    """An operator whose rows say what it does: (key, number, uses)."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def open(self, services: CausalServices) -> None:
        self._services = services

    def pieces(self) -> AbstractContextManager[None]:
        return nullcontext()

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        produced: list[Row] = []
        for (key,), (_, number, uses) in zip(keys, rows, strict=True):
            notes: list[Any] = []
            for index, use in enumerate(uses):
                if use == "emit":
                    produced.append((key, number, tuple(notes)))
                else:
                    notes.append(self._use(use, key, f"{number}-{index}"))
            self._services.state.setdefault("order", []).append((number, tuple(notes)))
        return produced

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        asked = [self._services.call(self._bench.ask), self._services.exact_clock()] if event else []
        return [
            (key.decode(), -1, (at, name, self._services.random.random(), *asked)) for at, key, name in due
        ]

    def _use(self, use: str, key: str, place: str) -> Any:
        services, bench = self._services, self._bench
        if use == "clock":
            return services.clock()
        if use == "exact":
            return services.exact_clock()
        if use == "draw":
            return services.random.random()
        if use == "die":
            raise Died(place)
        if use == "event timer":
            return services.event_timers.set(int(place.split("-")[0]) + 2, key.encode(), place)
        if use == "timer":
            return services.timers.set(services.clock() + 5, key.encode(), place)
        if use == "state":
            services.state[key] = services.state.get(key, 0) * 31 + len(services.state.get("order", []))
            return services.state[key]
        closure = {
            "call": bench.ask,
            "refused": bench.refuse,
            "drawing call": lambda: [services.random.random(), bench.ask()],
            "effect": bench.act,
            "refused effect": bench.act_refused,
        }.get(use)
        if closure is None:
            return None
        try:
            if "effect" in use:
                return services.effect(closure, (place,), {}, place)
            return services.call(closure)
        except Refused as error:
            return str(error)


@dataclass
class Bench:
    """An instance, its ports and its output."""

    nature: random.Random
    program: type[Program] = Program
    parallelism: int = 3
    record_at_a_time: bool = True
    event_inputs: tuple[EventInput, ...] = ()
    watermark_of: Any = None  # of epochs that older versions have begun
    realtime: bool = True
    readers: Sequence[Reader] | None = None
    programs: Callable[[Bench], Programs] | None = None  # instead of `program`
    marks_checkpoints: bool = False  # and records nothing
    rows: list[Row] = field(default_factory=list)
    saved: list[tuple[int, bytes]] = field(default_factory=list)
    performed: list[str] = field(default_factory=list)
    durable: int = 0  # the log is stable up to here
    shown: int = 0  # the conduit knows it up to here
    dies_at: str | None = None  # the effect in which the process dies

    def __post_init__(self) -> None:
        self.time = self.nature.randint(0, 10**6)
        self.services = CausalServices(
            state={},
            timers=Timers(),
            event_timers=Timers(),
            random=random.Random(self.nature.random()),
            outcomes=Outcomes(),
        )
        programs = self.programs(self) if self.programs is not None else None
        operator = programs or self.program(self)
        operator.open(self.services)
        if programs is None:
            operator.record_at_a_time = self.record_at_a_time
        config = InstanceConfig(
            "op",
            ORIGIN,
            Routing(
                self.readers
                or [Reader(route_by_key([KeyColumn(0, KeyKind.STRING)], self.parallelism), self.parallelism)]
            ),
            lambda rows: [(row[0],) for row in rows],
            event_inputs=self.event_inputs,
            watermark_of=self.watermark_of,
            programs=programs,
            recording=not self.marks_checkpoints,
            marks_checkpoints=self.marks_checkpoints,
        )
        self.instance = Instance(config, operator, self.services, self)

    # ports

    def clock(self) -> int:
        self.time += self.nature.randint(1, 9)
        return self.time

    def entropy(self) -> int:
        return self.nature.getrandbits(64)

    def encode(self, rows: list[Row]) -> Rows:
        return Rows(rows)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        self._save(persist)
        if durable:
            self.durable = self.end

    def flush_log(self, due: Sequence[Emit], log_start: int, log: bytes) -> None:
        self.carry_out(due)
        assert log_start <= self.shown, "a hole in what the conduit is shown"
        self.shown = max(self.shown, log_start + len(log))
        assert self.shown == self.durable, "an effect goes ahead of the log that it depends on"

    # what closures reach

    def ask(self) -> float:
        return self.nature.random()

    def refuse(self) -> None:
        raise Refused(f"refused {self.nature.random()}")

    def act(self, place: str) -> float:
        announced = codec.decode_steps(self.log[: self.durable], 0)[-1]
        assert not announced.complete, "an effect took place before the step it belongs to was stable"
        assert announced.effects[-1].key == place
        assert announced.effects[-1].outcome is None
        self.performed.append(place)
        if place == self.dies_at:
            raise Died(place)
        return self.nature.random()

    def act_refused(self, place: str) -> None:
        self.act(place)
        self.refuse()

    # driving

    def restore(self, recorded: bytes, snapshot: InstanceSnapshot | None = None, before: bytes = b"") -> None:
        self.instance.restore(snapshot, own_before=[(0, before)] if before else [], recorded=recorded)
        self.durable = len(recorded)
        self.shown = (snapshot.log_offset if snapshot is not None else 0) + len(recorded)

    def open(self, epoch: int = 0, emitted_output: int = 0, ends_at: int | None = None) -> None:
        opened = self.instance.open_epoch(
            epoch, realtime=self.realtime, emitted_output=emitted_output, ends_at=ends_at
        )
        self.carry_out(opened)

    def take(
        self,
        records: Sequence[tuple[int, int, Row]],
        deltas: Iterable[bytes] = (),
        watermarks: Mapping[int, int] | None = None,
    ) -> None:
        channels, positions, rows = zip(*records, strict=True) if records else ((), (), ())
        bundle = Bundle(list(channels), list(positions), list(rows), list(deltas), watermarks or {})
        self.carry_out(self.instance.take(bundle))

    def tick(self) -> None:
        self.carry_out(self.instance.tick(self.clock()))

    def carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Persist):
                self._save(action)
            else:
                assert isinstance(action, Emit)
                assert self.end >= action.log_start + len(action.log), "rows leave before they are saved"
                assert action.log_start <= self.shown, "a hole in what the conduit is shown"
                self.shown = max(self.shown, action.log_start + len(action.log))
                self.rows += action.payload.rows if isinstance(action.payload, Rows) else []

    def _save(self, persist: Persist) -> None:
        data = b"".join(persist.own)
        if data:
            assert persist.own_start == self.end, "what is saved does not go on where it ended"
            self.saved.append((persist.own_start, data))

    @property
    def end(self) -> int:
        return self.saved[-1][0] + len(self.saved[-1][1]) if self.saved else 0

    @property
    def log(self) -> bytes:
        return b"".join(data for _, data in self.saved)


class Died(BaseException):
    """The process is gone."""


def chunk_ends(log: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(log):
        ends.append(codec.chunk_at(log, ends[-1])[1])
    return ends
