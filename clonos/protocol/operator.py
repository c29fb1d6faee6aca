"""What the protocol asks of a user's operator, and what it gives in return.

An operator is deterministic but for its *services*: everything that could come out differently a second time
(the clock, random numbers, calls into the outside world, and which timers are due) reaches it through
`Services`, where the runtime records or repeats it. So an operator that gets the same bundles, the same due
timers and the same answers makes the same outputs and the same state (invariant I2), and the protocol needs to
know nothing else about it.

Times are microseconds since the epoch. Rows are tuples in the order of the stage's schema; outputs are tuples in
the order of the operator's output schema. State keys and timer keys are opaque bytes chosen by the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from clonos.errors import Where

if TYPE_CHECKING:
    from clonos.protocol.engine.given_rows import GivenRows
    from clonos.protocol.engine.task_scheduler import CallPort, CallRequest, Ended
    from clonos.protocol.recovery.causal.determinant import CallNumber


class KeyedStatePort(Protocol):
    """Keyed state of one instance.

    `get`, `put` and `touch` are for objects of the operator's own, of plain values that no other code refers to: `get`
    may hand out the same object again until it is put or evicted, so an object that was changed in place must be `put`
    (or `touch`ed, if nothing was read in between). `load` and `save` are for objects of the user: a copy each way, so
    that a live instance sees what a restored one would see. A key is used in one of the two ways.
    """

    def load(self, key: bytes) -> Any | None: ...

    def save(self, key: bytes, value: Any) -> None: ...

    def get(self, key: bytes) -> Any | None: ...

    def put(self, key: bytes, value: Any) -> None: ...

    def touch(self, key: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]: ...


class TimerPort(Protocol):
    """Timers of one family. Setting one again, and cancelling one that is not set, changes nothing."""

    def set(self, due: int, key: bytes, name: str = "") -> None: ...

    def cancel(self, due: int, key: bytes, name: str = "") -> None: ...

    def next_due(self) -> int | None: ...


Entry: TypeAlias = tuple[bytes, str | int]
"""Something that an operator keeps: the key of state under which it is, and which it is there."""


class EntryPlace(Enum):
    """Where an operator keeps its entries."""

    UNDER_KEYS = "under keys"  # where a user's function would keep its state: there is none
    BESIDE_KEYS = "beside keys"  # a user's function may keep state, under its key


class InputSetPort(Protocol):
    """An operator tells it what it does with records in the entries of its state, so that it is known of which its rows
    are (`clonos.protocol.archive.input_set`). It is there only where a past epoch is repeated to find that out."""

    def entries_are(self, place: EntryPlace) -> None:
        """The operator keeps entries there. It is said when the operator is opened."""
        ...

    def rows_go_to(self, made: Sequence[Any]) -> None:
        """The rows of the call are added to this list."""
        ...

    def becomes(self, forms: list[int]) -> None:
        """How many rows expressions behind the operator have left of each row of the call."""
        ...

    def holds(self, entry: Entry, elements: int) -> None:
        """So many elements an entry has now. It is said before anything else of one."""
        ...

    def adds(self, entry: Entry) -> None:
        """The record in hand is one more element of an entry."""
        ...

    def adds_each(self, entries: Sequence[Entry]) -> None:
        """Each record of the bundle in hand is one more element of the entry at its place."""
        ...

    def leaves(self, entry: Entry, elements: Sequence[int]) -> None:
        """Only these elements of an entry are kept any longer."""
        ...

    def merges(self, entry: Entry, other: Entry) -> None:
        """An entry has the elements of another one, too, which is gone."""
        ...

    def rows_are_of(self, entry: Entry, element: int | None = None, *, key: bytes | None = None) -> None:
        """The rows that follow are of what an entry has, or of one of its elements; and of the records of the call, or
        those of a key."""
        ...

    def rows_are_of_key(self, key: bytes) -> None:
        """The rows that follow are of the records of a key alone."""
        ...

    def gathers(self) -> None:
        """The records of the call wait for the end of the epoch."""
        ...

    def passes_over(self, records: Iterable[int]) -> None:
        """Nothing comes of these records of the call."""
        ...


class Randomness(Protocol):
    """The part of `random.Random` that the core relies on; the runtime gives a real `random.Random`."""

    def random(self) -> float: ...

    def getrandbits(self, k: int, /) -> int: ...


class Services(Protocol):
    """What the runtime gives an operator. All recording and repeating happens behind it."""

    @property
    def state(self) -> KeyedStatePort: ...

    @property
    def timers(self) -> TimerPort:
        """Processing-time timers."""
        ...

    @property
    def event_timers(self) -> TimerPort: ...

    @property
    def random(self) -> Randomness:
        """The instance's generator. It may be another object in another epoch, never within one bundle."""
        ...

    @property
    def given_rows(self) -> GivenRows | None:
        """What is told of how many rows each call of the function gives; None where nothing asks."""
        ...

    @property
    def input_sets(self) -> InputSetPort | None:
        """None but where it is to be found out of which records rows are."""
        ...

    @property
    def has_event_time(self) -> bool:
        """Whether a watermark ever comes."""
        ...

    @property
    def watermark(self) -> int | None: ...

    @property
    def epoch_watermark(self) -> int | None:
        """The watermark with which the epoch began: what is late is told by it (`clonos.protocol.event_time`)."""
        ...

    def clock(self) -> int:
        """The bundle clock: recorded once per bundle, on first use."""
        ...

    def exact_clock(self) -> int:
        """The clock now: recorded per call."""
        ...

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def begin_call(self, calls: CallPort, asked: CallRequest) -> CallNumber:
        """As `call`, while the function goes on: `clonos.protocol.engine.task_scheduler` does."""
        ...

    def next_answer(self, wait: Callable[[], Ended]) -> tuple[CallNumber, Callable[[], Any]]: ...

    def effect(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], key: str
    ) -> Any: ...

    def drop_late(self, records: int) -> None:
        """So many of the records being processed are late, and nothing comes of them: it is only counted."""
        ...

    def where(self, row: int | None) -> Where:
        """The place of the row with this index in the bundle being processed; for error messages only."""
        ...


class Operator(Protocol):
    """One instance of a user's operator. Calls never overlap; an exception from any of them ends the instance."""

    form: str
    """Which of the API's methods made it."""
    record_at_a_time: bool
    """Whether a bundle given in pieces would be processed just the same: it is a `RecordAtATime`, then."""
    per_epoch: bool
    """Whether bundles are only gathered, and processed at the end of the epoch."""

    def open(self, services: Services) -> None:
        """Called once, before anything else, with services that stay valid until `close`."""
        ...

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Process rows in order; `keys[i]` is the key of `rows[i]`. Returns the outputs in order."""
        ...

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[tuple[Any, ...]]:
        """Timers that the runtime has taken off the queue of one family, ordered by (due, key, name)."""
        ...

    def gathered(self) -> list[tuple[Any, ...]]:
        """The epoch ends: process what has been gathered, and hold nothing any more."""
        ...

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        """What the keyed state holds for a key, by its bytes there."""
        ...

    def close(self) -> None: ...


class RecordAtATime(Operator, Protocol):
    """An operator that takes a bundle in pieces, too."""

    def pieces(self) -> AbstractContextManager[None]:
        """The bundles given inside are pieces of one: what ends with a bundle ends with the last of them."""
        ...
