"""State that another version of a function wrote, brought up to date.

Done for all keys when the first epoch of the new version begins, so that nothing has to be kept beside a value about
who wrote it: after a failure the same state is restored and migrated again in the same way, or it is the state of a
snapshot behind the boundary and is not migrated at all. A migration is a function of value and version alone; it has
no `ctx`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clonos.errors import UserFunctionError
from clonos.operators.outputs import RAISED
from clonos.protocol.operator import Services
from clonos.protocol.versions.state_evolution import Fields

Migrate = Callable[[Any, str], Any]


def by_name(before: Fields, after: Sequence[str]) -> Migrate:
    """Values by the names of their fields: what is new is null, and what is gone is dropped."""
    places = [before.index(name) if name in before else None for name in after]

    def migrated(value: tuple[Any, ...], _: str) -> tuple[Any, ...]:
        # Shorter values are from before the last fields were added.
        return tuple([value[at] if at is not None and at < len(value) else None for at in places])

    return migrated


def migrate_all(
    services: Services,
    name: str,
    prefix: bytes,
    before: str,
    migrate: Migrate,
    stored: Callable[[Any], Any | None],
    *,
    users: bool = False,
) -> None:
    """Hand what is kept under keys with this prefix through `migrate(value, before)`; `stored` checks what comes back,
    and gives what to keep, or None for nothing. `users`: these are objects of the user, who gets copies."""
    state = services.state
    keep = state.save if users else state.put
    for key, value in state.scan(prefix):
        try:
            migrated = stored(migrate(state.load(key) if users else value, before))
        except RAISED as error:
            raise UserFunctionError(
                f"migrate of {name!r} failed for state written by version {before!r}: {type(error).__name__}: {error}",
                where=services.where(None),
                hint="No epoch of the new version has begun for this instance: mend it and start again",
            ) from error
        if migrated is None:
            state.delete(key)
        else:
            keep(key, migrated)
