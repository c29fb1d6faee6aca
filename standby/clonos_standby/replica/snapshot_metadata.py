"""An instance's snapshot metadata as bytes. Version and checksum are the manifest's, which carries it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from clonos.errors import InputError, SnapshotCorrupt, StateError
from clonos.operators.rows import Row, make_row
from clonos.protocol.engine.epoch_counts import Counted
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.recovery_line import Point
from clonos.protocol.ports import Bundle
from clonos.protocol.roles.snapshot_candidate import Candidate
from clonos.storage.manifest import Manifest
from clonos.values import state_codec as values

VERSION = 3
_WITH_CHANNEL_STATE = 4  # which is passed over by no reader that does not know it
_WITHOUT_RANDOM = 5  # which may have channels' states, too
_WITH_BOUND = 6  # which may have and lack the same; no reader that does not know the bound repeats beyond it
_READ = (2, VERSION, _WITH_CHANNEL_STATE, _WITHOUT_RANDOM, _WITH_BOUND)
"""Before 3, rows that waited had no rows inside."""


def encode(snapshot: InstanceSnapshot, *, acked_input: int = 0) -> bytes:
    """`acked_input` is the last bundle of the task attempt that the snapshot covers."""
    return values.encode(
        {
            "version": _version_for(snapshot),
            "epoch": snapshot.epoch,
            "taken": acked_input,
            "covered": snapshot.covered,
            "emitted": snapshot.emitted,
            "log_offset": snapshot.log_offset,
            "epoch_log_offset": snapshot.epoch_log_offset,
            "boundary": snapshot.boundary,
            "random": _kept_random(snapshot.random_state),
            "watermark": snapshot.watermark,
            "pending": _records(snapshot.pending),
            "reached": snapshot.reached,
            "sent": snapshot.sent,
            "received": [[*origin, upto] for origin, upto in snapshot.received.items()],
            "log_digest": snapshot.log_digest,
            "owed": snapshot.awaited_input,
            "log": snapshot.log,
            "began": snapshot.began,
            "arrived": snapshot.arrived,
            "claims": {channel: list(claim) for channel, claim in snapshot.claims.items()},
            "input_watermarks": snapshot.input_watermarks,
            "output_watermarks": list(map(list, snapshot.output_watermarks)),
            "records_watermarks": snapshot.records_watermarks,
            "counted": _counts(snapshot.counted),
            **({"program": snapshot.program} if snapshot.program else {}),
            "epoch_watermark": snapshot.epoch_watermark,
            "gathered": snapshot.gathered,
            **({"holds": True} if snapshot.holds else {}),
            **({"live_since": snapshot.live_since} if snapshot.live_since else {}),
            **({"policy": snapshot.kept_of_policy} if snapshot.kept_of_policy else {}),
            **({"channel_state": snapshot.channel_state} if snapshot.channel_state else {}),
            **({"unkept": snapshot.unkept} if snapshot.unkept else {}),
            **({} if snapshot.origin is None else {"origin": list(snapshot.origin)}),
            **({} if snapshot.serves_upto is None else {"serves_upto": snapshot.serves_upto}),
        }
    )


def _version_for(snapshot: InstanceSnapshot) -> int:
    if snapshot.serves_upto is not None:
        return _WITH_BOUND
    if snapshot.random_state is None:
        return _WITHOUT_RANDOM
    return _WITH_CHANNEL_STATE if snapshot.channel_state else VERSION


def _kept_random(state: tuple[Any, ...] | None) -> list[Any] | None:
    if state is None:
        return None
    kind, words, gauss = state
    return [kind, list(words), gauss]


def _read_random(said: list[Any] | None) -> tuple[Any, ...] | None:
    if said is None:
        return None
    kind, words, gauss = said
    return kind, tuple(words), gauss


def kept_records(records: Bundle) -> bytes:
    """Of a channel's state."""
    channels, positions = numbers_of(records.channels), numbers_of(records.positions)
    return values.encode(_records(zip(channels, positions, records.rows, strict=True)))


def _records(records: Iterable[tuple[int, int, Sequence[Any]]]) -> list[Any]:
    return [[channel, position, list(map(kept_value, row))] for channel, position, row in records]


def decode(raw: bytes, row_class: Callable[[int], type]) -> InstanceSnapshot:
    """`row_class` is that of the records of a channel. Raises SnapshotCorrupt."""
    try:
        said = _said(raw)
        return InstanceSnapshot(
            epoch=Epoch(said["epoch"]),
            covered=said["covered"],
            emitted=OutputNumber(said["emitted"]),
            log_offset=_log_offset(said),
            epoch_log_offset=LogOffset(said["epoch_log_offset"]),
            boundary=Epoch(said["boundary"]),
            random_state=_read_random(said["random"]),
            watermark=said["watermark"],
            pending=[
                (channel, position, tuple.__new__(row_class(channel), map(read_value, row)))
                for records in (said["pending"], *map(values.decode, said.get("channel_state", [])))
                for channel, position, row in records
            ],
            sent=said["sent"],
            received=_received(said),
            log_digest=said["log_digest"],
            awaited_input=said["owed"],
            program=said.get("program", ""),
            log=said.get("log", b""),
            began=said.get("began", {}),
            arrived=said.get("arrived", {}),
            epoch_watermark=said.get("epoch_watermark"),
            gathered=said.get("gathered", False),
            holds=said.get("holds", False),
            live_since=_live_since(said),
            claims={channel: (at, spoke) for channel, (at, spoke) in said.get("claims", {}).items()},
            input_watermarks=said.get("input_watermarks", {}),
            output_watermarks=[(at, before) for at, before in said.get("output_watermarks", [])],
            records_watermarks=said.get("records_watermarks", False),
            counted=_counted(said.get("counted")),
            kept_of_policy=said.get("policy", b""),
            unkept=said.get("unkept", {}),
            origin=Origin(*said["origin"]) if "origin" in said else None,
            serves_upto=Epoch(said["serves_upto"]) if "serves_upto" in said else None,
        )
    except (KeyError, TypeError, ValueError, StateError, InputError) as error:
        raise SnapshotCorrupt(f"snapshot metadata cannot be read: {error}") from error


def candidate(found: Manifest) -> Candidate:
    """What choosing a snapshot needs of it."""
    said = _said(found.meta)
    return Candidate(
        found.name,
        _log_offset(said),
        OutputNumber(said["emitted"]),
        said["taken"],
        said.get("log", b""),
        _received(said),
        _live_since(said),
    )


def point(name: str, raw: bytes) -> Point:
    """What a recovery line needs of a snapshot."""
    said = _said(raw)
    return Point(
        name,
        _log_offset(said),
        said["sent"],
        said["reached"],
        _received(said),
        said.get("unkept", {}),
        said.get("shown", {}),  # `held_output_codec`
    )


def resumed(raw: bytes, awaited_input: Mapping[int, int]) -> bytes:
    """The metadata of a snapshot as that of where an attempt begins, ahead of its senders by what they owe."""
    said = _said(raw)
    return values.encode({**said, "taken": 0, "owed": dict(awaited_input), "arrived": said.get("began", {})})


def kept_value(value: Any) -> Any:
    """A value of an input row, of which a struct is a row: its names and its values. There are no other tuples."""
    if isinstance(value, Row):
        return value._fields, tuple(map(kept_value, value))
    if isinstance(value, list):
        return list(map(kept_value, value))
    if isinstance(value, dict):
        return {kept_value(key): kept_value(each) for key, each in value.items()}
    return value


def read_value(kept: Any) -> Any:
    """The value that `kept_value` has written."""
    if isinstance(kept, tuple):
        names, each = kept
        return make_row(names, list(map(read_value, each)))
    if isinstance(kept, list):
        return list(map(read_value, kept))
    if isinstance(kept, dict):
        return {read_value(key): read_value(each) for key, each in kept.items()}
    return kept


def _counts(counted: Counted) -> list[Any]:
    return [counted.consumed, list(counted.sent), counted.dropped, counted.updated, counted.removed]


def _counted(said: list[Any] | None) -> Counted:
    if said is None:
        return Counted()
    consumed, sent, dropped, updated, removed = said
    return Counted(consumed, tuple(sent), dropped, updated, removed)


def _log_offset(said: Mapping[str, Any]) -> LogOffset:
    return LogOffset(said["log_offset"])


def _live_since(said: Mapping[str, Any]) -> LogOffset:
    return LogOffset(said.get("live_since", LOG_BEGIN))


def _received(said: Mapping[str, Any]) -> dict[Origin, LogOffset]:
    return {Origin(node, instance): LogOffset(upto) for node, instance, upto in said["received"]}


def _said(raw: bytes) -> dict[str, Any]:
    try:
        said: dict[str, Any] = values.decode(raw)
        if said["version"] not in _READ:
            raise SnapshotCorrupt(
                f"snapshot metadata of version {said['version']}; this library reads {VERSION}"
            )
    except (KeyError, TypeError, StateError) as error:
        raise SnapshotCorrupt(f"snapshot metadata cannot be read: {error}") from error
    return said
