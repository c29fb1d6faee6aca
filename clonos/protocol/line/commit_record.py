"""What it means that an epoch has committed: where instances and sinks stood, so that no later start has to guess.

Spark says that an epoch has committed by a file, which it does not sync, and which a copied or restored checkpoint may
lack. What is forgotten because of it is forgotten for good. So before anything is forgotten the driver writes this
record into the checkpoint, durably, and into the sink, beside the output. It says where every instance of an operator
ended the epoch (an instance that is not in it has never run), how far every sink had come, and it holds Spark's own two
files of the epoch, so that they can be written again.

    "CLCM" | u8 version | u32 CRC-32 of all that follows | JSON
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from clonos.errors import LogCorrupt, SnapshotCorrupt
from clonos.json_text import parsed_json
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, NodeId, Origin, OutputNumber

_MAGIC: Final = b"CLCM"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sBI")


@dataclass(frozen=True, slots=True)
class Ended:
    """How one instance ended the epoch, or the last one before that it ran."""

    snapshot: str
    log_offset: LogOffset
    emitted: OutputNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """See the module. `generation` is that of the start that wrote it last. `versions` of functions, by node, are those
    that the epoch ran under. `sinks` are those that use the place in which this record is kept; None in the checkpoint,
    and in records of versions that did not say it."""

    query: str
    epoch: Epoch
    generation: Generation
    ends: Mapping[Origin, Ended] = field(default_factory=dict)
    cursors: Mapping[Origin, Mapping[int, int]] = field(default_factory=dict)
    versions: Mapping[int, str] = field(default_factory=dict)
    offsets: bytes = b""  # Spark's `offsets/<epoch>`
    commits: bytes = b""  # Spark's `commits/<epoch>`
    sinks: frozenset[NodeId] | None = None

    def is_of(self, sink: NodeId) -> bool:
        """Whether a sink uses the place in which this record is kept."""
        return self.sinks is None or sink in self.sinks

    def kept_for(self, sink: NodeId, before: CommitRecord | None) -> CommitRecord:
        """What a sink is given to keep. `before` is what its place has: other sinks may use that place, too."""
        others: frozenset[NodeId] = frozenset()
        if before is not None:
            others = before.sinks if before.sinks is not None else frozenset(at.node for at in before.cursors)
        return replace(self, sinks=others | {sink})

    def without_cursors_of(self, sinks: Collection[NodeId]) -> CommitRecord:
        """For a start that has given these sinks another place, which has nothing of them yet."""
        return replace(self, cursors={at: each for at, each in self.cursors.items() if at.node not in sinks})

    def check_follows(self, before: CommitRecord | None) -> None:
        """An instance that had ended an epoch before has not gone back: a snapshot that is not there any more is no
        proof that there was none. Raises SnapshotCorrupt."""
        for origin, then in sorted(before.ends.items()) if before is not None else ():
            now = self.ends.get(origin)
            if now is None or now.log_offset < then.log_offset:
                raise SnapshotCorrupt(
                    f"node {origin.node}, instance {origin.instance} had ended an earlier epoch with {then.snapshot}; "
                    f"at the end of epoch {self.epoch} its newest snapshot is {now.snapshot if now else 'none'}",
                    hint="Restore the checkpoint as it was after that epoch",
                )

    def to_bytes(self) -> bytes:
        body: dict[str, Any] = {
            "query": self.query,
            "epoch": self.epoch,
            "generation": self.generation,
            "ends": [
                [*origin, end.snapshot, end.log_offset, end.emitted]
                for origin, end in sorted(self.ends.items())
            ],
            "cursors": [[*origin, sorted(each.items())] for origin, each in sorted(self.cursors.items())],
            "versions": sorted(self.versions.items()),
            "offsets": base64.b64encode(self.offsets).decode(),
            "commits": base64.b64encode(self.commits).decode(),
        }
        if self.sinks is not None:
            body["sinks"] = sorted(self.sinks)
        payload = json.dumps(body, separators=(",", ":")).encode()
        return _HEAD.pack(_MAGIC, _VERSION, zlib.crc32(payload)) + payload

    @classmethod
    def from_bytes(cls, raw: bytes, place: str) -> CommitRecord:
        """`place` is where it was read, for the error. Raises LogCorrupt."""
        payload = raw[_HEAD.size :]
        if len(raw) < _HEAD.size:
            raise _damaged(place)
        magic, version, checksum = _HEAD.unpack_from(raw)
        if magic != _MAGIC or checksum != zlib.crc32(payload):
            raise _damaged(place)
        if version != _VERSION:
            raise LogCorrupt(
                f"the commit record in {place} has format version {version}; this library reads {_VERSION}",
                hint="Go on with the version of clonos that wrote it",
            )
        try:
            return cls._of(parsed_json(payload))
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(place) from error

    @classmethod
    def _of(cls, body: dict[str, Any]) -> CommitRecord:
        return cls(
            query=body["query"],
            epoch=Epoch(body["epoch"]),
            generation=body["generation"],
            ends={
                Origin(node, at): Ended(name, LogOffset(offset), OutputNumber(emitted))
                for node, at, name, offset, emitted in body["ends"]
            },
            cursors={Origin(node, at): dict(each) for node, at, each in body["cursors"]},
            versions=dict(body["versions"]),
            offsets=base64.b64decode(body["offsets"], validate=True),
            commits=base64.b64decode(body["commits"], validate=True),
            sinks=frozenset(body["sinks"]) if "sinks" in body else None,
        )


def _damaged(place: str) -> LogCorrupt:
    return LogCorrupt(
        f"the commit record in {place} is damaged",
        hint="The checkpoint and the sink each keep one: restore either of them from a copy",
    )
