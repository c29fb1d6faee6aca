"""An archive from which a key was erased, as an earlier version would have left it: what states serve stands in a note,
and not in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from clonos.archive.reading import ArchivedInstance
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.sealed import sealed
from clonos_standby.replica import snapshot_metadata as metadata


def note_of(checkpoint: Path, origin: Origin) -> Path:
    """Where it stands."""
    return checkpoint / "clonos" / "archive" / "cleaned" / f"{origin.node}-{origin.instance}.json"


def leave_note(checkpoint: Path, origin: Origin, upto: Iterable[Epoch]) -> Path:
    note = note_of(checkpoint, origin)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(sealed({"upto": sorted(upto), "of": f"{origin.node}-{origin.instance}"}))
    return note


def bounds_in_states(instance: ArchivedInstance) -> dict[Epoch, Epoch]:
    """By the epoch of a state that says up to where it serves."""
    found: dict[Epoch, Epoch] = {}
    for name in instance.state_names:
        state = instance.states.named(str(name))
        assert state is not None
        bound = metadata.decode(state.meta, lambda _: tuple).serves_upto
        if bound is not None:
            found[name.epoch] = bound
    return found


def as_earlier_version(checkpoint: Path, instance: ArchivedInstance) -> Path:
    """The note, in the place of what states say."""
    note = leave_note(checkpoint, instance.origin, set(bounds_in_states(instance).values()))
    forget_bounds(checkpoint, instance)
    return note


def forget_bounds(checkpoint: Path, instance: ArchivedInstance) -> None:
    """Of states that are not encrypted."""
    node, number = instance.origin
    manifests = checkpoint / "clonos" / "archive" / "state" / str(node) / str(number) / "manifests"
    for name in instance.state_names:
        state = instance.states.named(str(name))
        assert state is not None
        said = metadata.decode(state.meta, lambda _: tuple)
        meta = metadata.encode(replace(said, serves_upto=None))
        (manifests / str(name)).write_bytes(replace(state, meta=meta).to_bytes())
