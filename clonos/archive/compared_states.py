"""Whether an instance that is repeated keeps what it kept then: its state at the end of an epoch, against the archived
one. Rows may be as they were though the state is not, and what is shown of that state would be wrong.

Both are read in the order of their keys, and their stored bytes compared. Only where these differ, values are: equal
ones may be stored in other bytes, as by another version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from clonos.archive.desk import Desk
from clonos.archive.given_key import KeyForm
from clonos.archive.reading import ArchivedInstance
from clonos.errors import SnapshotCorrupt
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Epoch
from clonos.storage.keyed_state import KeyedState
from clonos.storage.timers import timer_key
from clonos.storage.working_folders import working_folder
from clonos.values.canonical_text import canonical
from clonos.values.readable import key_said

Entry = tuple[bytes, bytes]
"""A key, and what is stored under it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one entry: of the keyed state, or a timer. `is_there` and `was_there`: whether each of the two has it."""

    key: bytes
    is_timer: bool
    is_there: bool
    was_there: bool

    def said(self, form: KeyForm) -> str:
        """Without values: these may be data that is not to be shown."""
        found = key_said(self.key)
        key = form.text(found if isinstance(found, tuple) else (found,))
        what = f"a timer of key {key}" if self.is_timer else f"key {key}"
        if self.is_there and self.was_there:
            return f"{what} has another one"
        if self.is_timer:
            return f"{what} {'was not there' if self.is_there else 'is missing'}"
        return f"{what} {'had none' if self.is_there else 'has none, and had one'}"


def state_that_differs(instance: ArchivedInstance, epoch: Epoch, desk: Desk) -> Lacking | None:
    """Of an epoch that has just been repeated at the desk. None where its state is as it was, or is not archived."""
    archived = instance.state_at_end(epoch)
    if archived is None:
        return None
    with working_folder("state") as folder:
        path = str(Path(folder, "state"))
        try:
            instance.states.restore(archived, path)
            with closing(KeyedState(path)) as then:
                found = first_difference(desk.state, then)
        except SnapshotCorrupt:
            return None  # which is said of the archived state itself
    if found is None:
        return None
    said = found.said(KeyForm.of_program(instance.program_of(epoch)))
    return Lacking(
        f"epoch {epoch}: its rows are as they were, and the state behind it is not: {said}. What the function "
        "depends on beside its records has changed, or is not recorded: a file or a variable that it reads, a package. "
        "Bring that back; until then state of this epoch cannot be shown as it was",
        epoch=epoch,
    )


def first_difference(now: KeyedState, then: KeyedState) -> Difference | None:
    """The first entry that differs, in the order of keys, timers last."""
    for place, before, after in _pairs(now.stored(), then.stored()):
        if not _is_same(now, place, before, after):
            return Difference(place, False, before is not None, after is not None)
    for place, before, after in _pairs(now.stored_timers(), then.stored_timers()):
        if before is None or after is None:
            return Difference(timer_key(place), True, before is not None, after is not None)
    return None


def _is_same(state: KeyedState, key: bytes, one: bytes | None, other: bytes | None) -> bool:
    if one == other:
        return True
    if one is None or other is None:
        return False
    return canonical(state.value_of(key, one)) == canonical(state.value_of(key, other))


def _pairs(
    one: Iterator[Entry], other: Iterator[Entry]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """What two walks have under each key, in order."""
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        key = min(each[0] for each in (left, right) if each is not None)
        in_left, in_right = (
            each[1] if each is not None and each[0] == key else None for each in (left, right)
        )
        yield key, in_left, in_right
        left = left if in_left is None else next(one, None)
        right = right if in_right is None else next(other, None)
