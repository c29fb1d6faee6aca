"""Of which records the rows of an instance are, whose calls are looked at one after the other: those that a call was
given, and those that state had kept.

Operators of the library tell what they do with entries of their state (`InputSetPort`), so of their rows it is known
exactly. Of the state of a user's function it is only known which keys have some, and when it changes. So what the state
of a key may be made of are all records of the key whose calls have changed it, since it was last empty behind a call.
A timer is of the record for which it was set first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from clonos.protocol.archive.input_set import InputSet, Kept, united
from clonos.protocol.ids import RecordId
from clonos.protocol.operator import Entry, EntryPlace

TimerId = tuple[int, bytes, str, bool]
"""When it is due, its key and name, whether it is of event time."""


class GivenRecord(NamedTuple):
    """A record that a call was given; `key` in bytes, `row` what it said, if that is wanted."""

    record: RecordId
    key: bytes
    row: Any = None


@dataclass(frozen=True, slots=True)
class MadeOf:
    """Of rows of a call that stand together, from the one with the index `first` on, what they are of: records that the
    call was given, and records that state had kept."""

    first: int
    count: int
    inputs: tuple[RecordId, ...]
    kept: tuple[Kept, ...]

    @property
    def lacks(self) -> bool:
        """Whether not all of it is known: some was kept before the repetition began."""
        return any(part.lacks for part in self.kept)


@dataclass(slots=True)
class _Call:
    """That is under way."""

    given: Sequence[GivenRecord] = ()
    of: Sequence[TimerId] = ()
    timer: tuple[Kept, ...] = ()  # what these are of
    passed_over: set[int] = field(default_factory=set)
    made: Sequence[Any] = ()  # its rows so far
    told: list[_Told] = field(default_factory=list)
    read: list[Kept] = field(default_factory=list)  # of entries, so far
    forms: list[int] | None = None  # how many rows each of its rows became
    states: dict[bytes, Kept] = field(default_factory=dict)  # of a user's function, when it began

    @property
    def ends_epoch(self) -> bool:
        return not self.given and not self.of

    @property
    def keys(self) -> set[bytes]:
        return {timer[1] for timer in self.of} or {one.key for one in self.given}

    def records(self, key: bytes | None) -> Sequence[GivenRecord]:
        """That the function was given, or those of a key."""
        if key is None and not self.passed_over:
            return self.given
        return [
            one
            for at, one in enumerate(self.given)
            if at not in self.passed_over and (key is None or one.key == key)
        ]

    def inputs(self, key: bytes | None) -> tuple[RecordId, ...]:
        return tuple([one.record for one in self.records(key)])


@dataclass(frozen=True, slots=True)
class _Told:
    """From the row with the index `at` on, what rows are of."""

    at: int
    kept: tuple[Kept, ...]
    key: bytes | None
    read: tuple[Kept, ...] = ()  # before, by the function of a key that may have kept it in its state


class InputSets:
    """Of one instance (`clonos.protocol.operator.InputSetPort`). `through_state`: rows are also of what the state of a
    user's function may be made of. `is_followed` says which records are looked for, if not all rows are asked about."""

    def __init__(
        self,
        *,
        through_state: bool = False,
        is_followed: Callable[[RecordId], bool] = lambda record: False,
    ) -> None:
        self.through_state = through_state
        self._is_followed = is_followed
        self._is_from_before = False
        self._entries: dict[Entry, InputSet] = {}
        self.place: EntryPlace | None = None  # where the operator itself keeps something, if it does
        self._states: dict[bytes, InputSet] = {}  # of a user's function, by key
        self._timers: dict[TimerId, tuple[Kept, ...]] = {}
        self._gathered: dict[bytes, InputSet] = {}
        self._call = _Call()

    # ------------------------------------------------------------------ told by who looks on

    def begin_at_state(self, timers: Iterable[TimerId]) -> None:
        """The instance begins at a state, in which these timers are set. Of which records it is made is not known."""
        self._is_from_before = True
        unknown = InputSet()
        unknown.add_unknown()
        for timer in timers:
            self._timers[timer] = (unknown.all(),)

    def begin_call(self, given: Sequence[GivenRecord] = (), timers: Sequence[TimerId] = ()) -> None:
        """A call of the operator begins: with records, of timers, or at the end of an epoch, which has neither. Of
        several timers it is not known which of them a row is of."""
        if self._call.ends_epoch:
            self._gathered.clear()
        fired = [part for timer in timers for part in self._timers.pop(timer, ())]
        self._call = _Call(given, timers, united(fired if len(timers) <= 1 else map(Kept.as_bound, fired)))

    def state_was(self, key: bytes, *, is_there: bool) -> None:
        """What a user's function has kept for a key of the call, when it begins."""
        if key not in self._states and is_there:
            found = self._states[key] = InputSet()
            if self._is_from_before:
                found.add_unknown()
        if key in self._states:
            self._call.states[key] = self._states[key].all(is_bound=True)

    def state_is(self, key: bytes, *, is_there: bool, has_changed: bool) -> None:
        """The same when the call has ended."""
        call = self._call
        if not is_there:
            self._states.pop(key, None)  # what comes next begins with nothing
        elif has_changed:
            found = self._states.setdefault(key, InputSet())
            for one in call.records(key):
                self._add(found, one)
            found.extend_once(part for part in (*call.timer, *call.read) if part.of is not found)
            if call.ends_epoch and (held := self._gathered.get(key)) is not None:
                found.extend_once([held.all()])

    def timer_set(self, timer: TimerId) -> None:
        """Setting one again changes nothing."""
        if timer in self._timers:
            return
        call, key = self._call, timer[1]
        records = InputSet()
        for one in call.records(key) or call.records(None):
            self._add(records, one)
        if call.ends_epoch and (held := self._gathered.get(key)) is not None:
            records.extend([held.all()])
        direct = (records.all(),) if len(records) else ()
        self._timers[timer] = united((*direct, *call.timer, *self._bounds(key)))

    def timer_cancelled(self, timer: TimerId) -> None:
        self._timers.pop(timer, None)

    def end_call(self, rows: int) -> list[MadeOf]:
        """What the rows of the call are of, in their order."""
        call = self._call
        if not call.told and call.forms is None:  # of nearly every call
            kept = (*call.timer, *self._bounds(None))
            return [MadeOf(0, rows, call.inputs(None), kept)] if rows else []
        told = call.told if call.told and call.told[0].at == 0 else [_Told(0, (), None), *call.told]
        ends = [*accumulate(call.forms or [1] * rows, initial=0)]
        assert ends[-1] == rows, "each row of the call became so many"
        of_timer = () if call.told else call.timer
        found: list[MadeOf] = []
        for one, behind in pairwise([*told, _Told(len(ends) - 1, (), None)]):
            first, end = ends[one.at], ends[min(behind.at, len(ends) - 1)]
            if end > first:
                kept = (*one.kept, *of_timer, *one.read, *self._bounds(one.key))
                found.append(MadeOf(first, end - first, call.inputs(one.key), kept))
        return found

    @property
    def gathered_keys(self) -> list[bytes]:
        """Of the records that wait for the end of the epoch."""
        return [*self._gathered]

    @property
    def still_follows(self) -> bool:
        """Whether anything that is kept is of a record that is looked for."""
        waiting = () if self._call.ends_epoch else self._gathered.values()
        sets = (*self._entries.values(), *self._states.values(), *waiting)
        parts = (part for timer in self._timers.values() for part in timer)
        return any(each.follows for each in sets) or any(part.followed() is not None for part in parts)

    # ------------------------------------------------------------------ told by the operator

    def entries_are(self, place: EntryPlace) -> None:
        self.place = place

    def rows_go_to(self, made: Sequence[Any]) -> None:
        self._call.made = made

    def becomes(self, forms: list[int]) -> None:
        self._call.forms = forms

    def holds(self, entry: Entry, elements: int) -> None:
        if entry not in self._entries:
            found = self._entries[entry] = InputSet()
            for _ in range(elements):
                found.add_unknown()

    def adds(self, entry: Entry) -> None:
        (given,) = self._call.given
        self._add(self._of(entry), given)

    def adds_each(self, entries: Sequence[Entry]) -> None:
        for entry, given in zip(entries, self._call.given, strict=True):
            self._add(self._of(entry), given)

    def leaves(self, entry: Entry, elements: Sequence[int]) -> None:
        before = self._of(entry)
        if elements:
            left = self._entries[entry] = InputSet()
            left.extend(Kept(before, at, at + 1) for at in elements)
        else:
            del self._entries[entry]

    def merges(self, entry: Entry, other: Entry) -> None:
        merged = InputSet()
        merged.extend([self._of(entry).all(), self._of(other).all()])
        self._entries[entry] = merged
        del self._entries[other]

    def rows_are_of(self, entry: Entry, element: int | None = None, *, key: bytes | None = None) -> None:
        found = self._of(entry)
        kept = found.all() if element is None else Kept(found, element, element + 1)
        self._tell((kept,), key)

    def rows_are_of_key(self, key: bytes) -> None:
        held = self._gathered.get(key) if self._call.ends_epoch else None
        self._tell(() if held is None else (held.all(),), key)

    def gathers(self) -> None:
        for at, one in enumerate(self._call.given):
            if at not in self._call.passed_over:
                self._add(self._gathered.setdefault(one.key, InputSet()), one)

    def passes_over(self, records: Iterable[int]) -> None:
        self._call.passed_over.update(records)

    # ------------------------------------------------------------------ inside

    def _of(self, entry: Entry) -> InputSet:
        """One that it has not heard of was there before."""
        if entry not in self._entries:
            self.holds(entry, 1)
        return self._entries[entry]

    def _add(self, found: InputSet, one: GivenRecord) -> None:
        found.add(one.record, one.row, is_followed=self._is_followed(one.record))

    def _tell(self, kept: tuple[Kept, ...], key: bytes | None) -> None:
        call = self._call
        at = len(call.made)
        if call.told and call.told[-1].at == at:
            call.told.pop()  # no row came of what was told before
        is_of_function = self.through_state and key is None and self.place is not EntryPlace.UNDER_KEYS
        call.told.append(_Told(at, kept, key, tuple(map(Kept.as_bound, call.read)) if is_of_function else ()))
        if is_of_function:
            call.read += kept

    def _bounds(self, key: bytes | None) -> tuple[Kept, ...]:
        """What the state of the call's keys, or of one, may be made of."""
        if not self.through_state:
            return ()
        states = self._call.states
        return tuple(kept for at, kept in states.items() if len(kept) and key in (None, at))
