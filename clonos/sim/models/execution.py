"""One execution of a model, step by step: an immutable state, so that a search may go back to it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

RECEIVERS: Final = 2


class Function(enum.Enum):
    """What the process makes of a record."""

    MAP = "maps"  # deterministic, whatever the order
    COUNT = "counts"  # deterministic, but it depends on the order
    DRAW = "draws"  # where the row goes, and what is in it


class Identity(enum.Enum):
    """What a row is known by to its receivers, and so the recovery."""

    LINEAGE = "lineage"  # the record that it was made of: a receiver drops what it has had
    COUNTER = "counters"  # a number that the process counts: a receiver drops what is not beyond the last
    CHANNEL_COUNTER = "channel_counters"  # the same, counted for each receiver
    RECORDED = "recorded"  # the same, and the process repeats the order and the outcomes that it recorded


@dataclass(frozen=True, slots=True)
class World:
    """So many records come from each source."""

    function: Function
    sources: int
    records: int

    @property
    def name(self) -> str:
        source = "one source" if self.sources == 1 else f"{self.sources} sources"
        return f"{source}, a function that {self.function.value}"


class Row(NamedTuple):
    """What is seen. `with_` is the count or the draw."""

    record: str
    with_: int


class Take(NamedTuple):
    """The process takes the next record of a source."""

    source: int
    draw: int


class Checkpoint(NamedTuple):
    """The process keeps where it stands."""


class Crash(NamedTuple):
    """The process is lost, and another one goes on from the checkpoint."""


Step: TypeAlias = Take | Checkpoint | Crash


class Process(NamedTuple):
    """What a checkpoint has."""

    taken: tuple[int, ...]  # by source
    counted: int
    sent: tuple[int, ...]  # by receiver


class Seen(NamedTuple):
    """What a receiver has had: the identity of each row that it took, and the row."""

    identity: str | int
    row: Row


@dataclass(frozen=True, slots=True)
class State:
    """After some steps."""

    process: Process
    kept: Process
    recorded: tuple[Take, ...] = ()  # since the checkpoint
    to_repeat: tuple[Take, ...] = ()
    seen: tuple[tuple[Seen, ...], ...] = ((),) * RECEIVERS
    crashes: int = 0

    @classmethod
    def first(cls, world: World) -> State:
        """Nothing has come yet."""
        begins = Process((0,) * world.sources, 0, (0,) * RECEIVERS)
        return cls(begins, begins)

    def visible(self) -> tuple[tuple[Row, ...], ...]:
        """By receiver."""
        return tuple(tuple(each.row for each in had) for had in self.seen)


class Sent(NamedTuple):
    """What became of a row."""

    to: int
    identity: str | int
    row: Row
    is_taken: bool


def is_over(world: World, state: State) -> bool:
    """Whether all records have been taken."""
    return all(taken == world.records for taken in state.process.taken)


def next_steps(world: World, state: State, *, crashes: int) -> Iterator[Step]:
    """All that may happen now, with so many crashes in all."""
    if state.crashes < crashes:
        yield Crash()
    if state.process != state.kept and not state.to_repeat and crashes:
        yield Checkpoint()
    if state.to_repeat:
        yield state.to_repeat[0]
        return
    for source, taken in enumerate(state.process.taken):
        if taken < world.records:
            for draw in range(RECEIVERS if world.function is Function.DRAW else 1):
                yield Take(source, draw)


def perform(world: World, identity: Identity, state: State, step: Step) -> tuple[State, Sent | None]:
    """The state after a step, and the row that was sent in it."""
    if isinstance(step, Checkpoint):
        return replace(state, kept=state.process, recorded=()), None
    if isinstance(step, Crash):
        again = (*state.recorded, *state.to_repeat) if identity is Identity.RECORDED else ()
        lost = replace(state, process=state.kept, to_repeat=again, recorded=(), crashes=state.crashes + 1)
        return lost, None
    return _take(world, identity, state, step)


def _take(world: World, identity: Identity, state: State, step: Take) -> tuple[State, Sent]:
    before = state.process
    record = f"{'abc'[step.source]}{before.taken[step.source] + 1}"
    to = step.draw if world.function is Function.DRAW else step.source % RECEIVERS
    count = before.counted + 1
    row = Row(record, {Function.MAP: 0, Function.COUNT: count, Function.DRAW: step.draw}[world.function])
    sent = _raised(before.sent, to)
    known = _known_by(identity, record, sent, to)
    is_taken = not any(_has_had(each.identity, known) for each in state.seen[to])
    seen = tuple(
        (*each, Seen(known, row)) if at == to and is_taken else each for at, each in enumerate(state.seen)
    )
    after = replace(
        state,
        process=Process(_raised(before.taken, step.source), count, sent),
        recorded=(*state.recorded, step),
        to_repeat=state.to_repeat[1:],
        seen=seen,
    )
    return after, Sent(to, known, row, is_taken)


def _known_by(identity: Identity, record: str, sent: tuple[int, ...], to: int) -> str | int:
    match identity:
        case Identity.LINEAGE:
            return record
        case Identity.COUNTER:
            return sum(sent)
        case Identity.CHANNEL_COUNTER | Identity.RECORDED:
            return sent[to]


def _has_had(one: str | int, another: str | int) -> bool:
    """Whether a receiver that has had a row of one identity takes that of another for one that it has had."""
    if isinstance(one, int) and isinstance(another, int):
        return another <= one
    return one == another


def _raised(counts: tuple[int, ...], at: int) -> tuple[int, ...]:
    return tuple(count + (number == at) for number, count in enumerate(counts))
