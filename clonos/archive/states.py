"""Keyed state of the past: as it was at the end of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clonos.archive.reading import LAST, ArchivedInstance, desk_for
from clonos.errors import StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Epoch
from clonos.values.readable import key_said


def states_of(instance: ArchivedInstance, epoch: Epoch) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Of an instance, by key; what is kept under a name, as state variables are, has that in its key. Raises StateError
    where the epoch cannot be repeated."""
    with desk_for(instance) as desk:
        for found in instance.repeated(epoch, desk, number=LAST):
            if isinstance(found, Lacking):
                raise StateError(
                    f"the state of {instance} at the end of epoch {epoch} cannot be had: {found.why}",
                    hint="`clonos archive verify` says of every epoch whether it can be repeated",
                )
        for data, value in desk.states():
            said = key_said(data)
            yield said if isinstance(said, tuple) else (said,), value
