"""What a sink's instance holds, as bytes: a part of its checkpoint. Version and checksums are those of the manifest
that carries it, or names its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clonos.errors import InputError, SnapshotCorrupt, StateError
from clonos.protocol.engine.output_commit import Write
from clonos.protocol.ids import LOG_BEGIN, NO_OUTPUT, Epoch
from clonos.protocol.ingestion import Ingested
from clonos.protocol.recovery.rollback.held_output import HeldWrite, SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.values import state_codec as values
from clonos_standby.replica import snapshot_metadata as metadata


def encode_meta(checkpoint: SinkCheckpoint) -> bytes:
    """All but what is held. It can be read as that of an operator's instance, as far as a recovery line asks."""
    return values.encode(
        {
            "version": metadata.VERSION,
            "epoch": checkpoint.epoch,
            "shown": dict(checkpoint.shown),
            "reached": dict(checkpoint.covered),
            "sent": {},
            "received": [],
            "emitted": NO_OUTPUT,
            "log_offset": LOG_BEGIN,
            "taken": 0,
        }
    )


def decode_meta(raw: bytes) -> SinkCheckpoint:
    """Without what is held. Raises SnapshotCorrupt."""
    said = _decoded(raw)
    try:
        return SinkCheckpoint(Epoch(said["epoch"]), said["shown"], said["reached"])
    except (KeyError, TypeError) as error:
        raise _unreadable(error) from error


def encode_held(checkpoint: SinkCheckpoint, columns: Sequence[str]) -> bytes:
    """`columns` are the names of those that the rows have."""
    return values.encode({"columns": list(columns), "writes": [_written(held) for held in checkpoint.held]})


def decode_held(raw: bytes, row_class: type, columns: Sequence[str]) -> list[HeldWrite]:
    """For a sink that takes rows with these columns, of this class: another program may have another one more, which is
    null in rows that were made before. Raises SnapshotCorrupt."""
    said = _decoded(raw)
    try:
        places = {name: at for at, name in enumerate(said["columns"])}
        order = [places.get(name) for name in columns]
        return [_read(write, row_class, order) for write in said["writes"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _unreadable(error) from error


def _written(held: HeldWrite) -> dict[str, Any]:
    write = held.write
    return {
        "epoch": held.epoch,
        "before": None if held.before is None else list(held.before),
        "rows": [list(map(metadata.kept_value, row)) for row in write.rows],
        "ids": write.ids,
        "cursors": write.cursors,
        "ingested": [list(each) for each in write.ingested],
    }


def _read(said: Mapping[str, Any], row_class: type, order: Sequence[int | None]) -> HeldWrite:
    given = [list(map(metadata.read_value, row)) for row in said["rows"]]
    rows: list[tuple[Any, ...]] = [
        tuple.__new__(row_class, [None if at is None else row[at] for at in order]) for row in given
    ]
    ingested = [Ingested(*each) for each in said["ingested"]]
    write = Write(rows, said["ids"], said["cursors"], [], ingested)
    before = None if said["before"] is None else StoredRound(*said["before"])
    return HeldWrite(write, Epoch(said["epoch"]), before)


def _decoded(raw: bytes) -> Any:
    try:
        return values.decode(raw)
    except (StateError, InputError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> SnapshotCorrupt:
    return SnapshotCorrupt(f"a sink's checkpoint cannot be read: {error}")
