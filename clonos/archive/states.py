"""Keyed state of the past: as it was at the end of an epoch, or around the call that made a row."""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clonos.archive.epochs_of_rows import LAST
from clonos.archive.explain import RowId, made_by
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.tracing import Again, Row, TracedCall
from clonos.errors import ConfigurationError, StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Epoch
from clonos.protocol.recovery.causal.determinant import Step
from clonos.storage.keyed_state import KeyedState
from clonos.storage.working_folders import working_folder
from clonos.values.readable import key_said

KeyState = tuple[tuple[Any, ...], Any]
"""A key, and its state. What is kept under a name, as state variables are, has that in its key."""


def states_of(instance: ArchivedInstance, epoch: Epoch) -> Iterator[KeyState]:
    """Of an instance at the end of an epoch, by key. Raises StateError where the epoch cannot be repeated."""
    with desk_for(instance) as desk:
        why = ""
        for found in instance.repeated(epoch, desk, number=LAST):
            why = found.why if isinstance(found, Lacking) else ""
        if not why:
            yield from map(_said, desk.states())
            return
    with desk_for(instance) as desk:
        if instance.begin_at_end(epoch, desk):
            yield from map(_said, desk.states())
            return
    raise StateError(
        f"the state of {instance} at the end of epoch {epoch} cannot be had: {why}",
        hint="`clonos archive verify` says of every epoch whether it can be repeated",
    )


def states_around(query: ArchivedQuery, row: RowId, *, before: bool) -> Iterator[KeyState]:
    """Of the instance that has made a row, by key: as the call that made the row has left it, or, with `before`, as
    that call found it. Raises StateError where the call cannot be repeated."""
    instance, epoch, call = made_by(query, row)
    with working_folder("state") as folder:
        around = _Around(call, before=before)
        with desk_for(instance, around) as desk:
            around.fork = lambda: desk.fork(Path(folder, "state"))
            lacking = instance.repeated_to_row(row.number, epoch, desk)
        if around.taken is None:
            why = f": {lacking.why}" if lacking is not None else ""
            raise StateError(f"the call that made the row {row} was not repeated again{why}")
        with closing(around.taken.state):
            yield from map(_said, around.taken.entries())


def row_named(query: ArchivedQuery, operator: str, at: str, *, before: bool) -> RowId | None:
    """The row of an operator that `at` is the id of; None where it is an epoch or a time. Raises ConfigurationError
    where another operator has made it, or where state `before` a call is asked for and `at` names no row; StateError
    where no operator has made it."""
    if not RowId.is_meant(at):
        if before:
            raise ConfigurationError(
                f"state before a call is asked for, and {at!r} is no id of a row, which a call has made",
                hint="Name the row, or leave `before` out: at an epoch, state is that of its end",
            )
        return None
    row = RowId.parse(at, query.id)
    made = query.operator_instance(row.origin).operator
    if made != operator:
        raise ConfigurationError(
            f"the row {row} was made by {made!r}, not by {operator!r}", hint=f"Ask for operator {made!r}"
        )
    return row


@dataclass(frozen=True, slots=True)
class _Taken:
    """The state in the middle of a step: that which the operator has handed back, and what it holds of the keys of the
    step until the end of that."""

    state: KeyedState
    held: dict[bytes, Any]
    replaced: frozenset[bytes]  # what these keys had when the step began

    def entries(self) -> Iterator[tuple[bytes, Any]]:
        passed_over = self.replaced | self.held.keys()
        others = (entry for entry in self.state.scan(b"") if entry[0] not in passed_over)
        return heapq.merge(others, sorted(self.held.items(), key=_key), key=_key)


class _Around(Again):
    """Takes the state before or behind the call that has made a row, which an earlier repetition has found."""

    fork: Callable[[], KeyedState]
    """The state of the desk as it is now. It is called once."""

    def __init__(self, call: TracedCall, *, before: bool) -> None:
        super().__init__(call)
        self._before = before
        self._keys: dict[Row, None] = {}  # of the calls of the step so far
        self._replaced: set[bytes] = set()
        self.taken: _Taken | None = None

    def step_begins(self, step: Step) -> None:
        super().step_begins(step)
        self._keys.clear()
        self._replaced.clear()

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        is_it = self.is_again(call)
        if is_it and self._before:
            self._take(operator)
        self._keys |= dict.fromkeys(call.keys)
        self._replaced |= call.before.keys()
        rows = run()
        if is_it and not self._before:
            self._take(operator)
        return rows

    def _take(self, operator: Any) -> None:
        held: dict[bytes, Any] = {}
        for key in self._keys:
            held |= copy.deepcopy(operator.kept(key))
        self.taken = _Taken(self.fork(), held, frozenset(self._replaced))


def _key(entry: tuple[bytes, Any]) -> bytes:
    return entry[0]


def _said(entry: tuple[bytes, Any]) -> KeyState:
    said = key_said(entry[0])
    return said if isinstance(said, tuple) else (said,), entry[1]
