"""What an instance takes, what it asks of the runtime that drives it, and what it says is to be done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from clonos.protocol.destination import Destinations
from clonos.protocol.frontier import Column, numbers_of
from clonos.protocol.ids import LogOffset, OutputNumber
from clonos.protocol.ingestion import Ingested
from clonos.protocol.recovery.marker import Marker

Row = tuple[Any, ...]


class Encoded(Protocol):
    """Output rows in the form the runtime ships them."""

    @property
    def digest(self) -> int: ...
    @property
    def older_digest(self) -> int:
        """As it is recorded in logs of versions that sent the rows in another form."""


class StepOperator(Protocol):
    """What an instance asks of the operator that it runs (see `clonos.protocol.operator.Operator`)."""

    @property
    def record_at_a_time(self) -> bool: ...
    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]: ...
    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]: ...
    def gathered(self) -> list[Row]: ...
    def pieces(self) -> AbstractContextManager[None]: ...


class InstancePorts(Protocol):
    """What an instance needs from the runtime that drives it."""

    def clock(self) -> int: ...
    def entropy(self) -> int:
        """64 random bits."""

    def encode(self, rows: list[Row]) -> Encoded:
        """Deterministic: rows that are the same when they have been sent have the same digest."""

    def persist(self, persist: Persist, *, durable: bool) -> None:
        """Write now, for an effect; `durable` asks for more than surviving this process."""

    def flush_log(self, due: Sequence[Emit], log_start: LogOffset, log: bytes) -> None:
        """For an effect, behind `persist`: hand on what is due from earlier steps; return when a process that may take
        over finds the own log up to its end."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Write received deltas and an increment of the own log, in one batch."""

    deltas: tuple[bytes, ...]
    own_start: LogOffset
    own: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand rows on, together with the log increment that they depend on. Rows may be none."""

    first: OutputNumber  # output number of the first row
    count: int
    payload: Encoded | None
    destinations: Destinations
    deltas: dict[int, bytes]  # by destination; it goes with the first of these rows that does
    log_start: LogOffset
    log: bytes
    emitted_output: OutputNumber  # output number of the last row so far, suppressed ones included
    watermarks: Mapping[int, int] = field(default_factory=dict)  # by destination, behind these rows


Action = Persist | Emit


@dataclass(frozen=True, slots=True)
class Bundle:
    """Records as they arrived. `deltas` are those found on any of its rows, in order."""

    channels: Column
    positions: Column
    rows: list[Row]
    deltas: Sequence[bytes] = ()
    watermarks: Mapping[int, int] = field(default_factory=dict)
    """By channel, what its sender has said of event time behind these records. Records may be none."""
    ingested: Sequence[Ingested] = ()
    """When the records entered the query, in their order."""
    markers: Sequence[Marker] = ()
    """In their order."""

    @classmethod
    def joined(cls, bundles: Sequence[Bundle]) -> Bundle:
        """Bundles that came one behind the other, as one."""
        watermarks: dict[int, int] = {}
        for each in bundles:
            watermarks.update(each.watermarks)
        return cls(
            [channel for each in bundles for channel in numbers_of(each.channels)],
            [position for each in bundles for position in numbers_of(each.positions)],
            [row for each in bundles for row in each.rows],
            [delta for each in bundles for delta in each.deltas],
            watermarks,
            [ingested for each in bundles for ingested in each.ingested],
        )
