"""Where instances begin at the earliest, inside JSON objects and msgpack maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clonos.errors import ProtocolError
from clonos.protocol.ids import Epoch, Origin, OutputNumber
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.rounds import SafePoint, StoredRound
from clonos.wire.json_fields import origin_of, whole

_FIELDS: Final = ("node", "instance", "epoch", "round", "unread")


def pack_safe(safe: Mapping[Origin, SafePoint]) -> list[list[int]]:
    """`[node, instance, epoch, checkpoint, first unread row]` of each."""
    return [[*origin, *point.stored, point.unread] for origin, point in safe.items()]


def parse_safe(said: Any, name: str) -> dict[Origin, SafePoint]:
    """Raises ProtocolError for anything else."""
    if not isinstance(said, list):
        raise ProtocolError(f"{name}: {said!r} does not say of instances where they begin")
    points: dict[Origin, SafePoint] = {}
    for point in said:
        if not isinstance(point, list) or len(point) != len(_FIELDS):
            raise ProtocolError(f"{name}: {point!r} does not say of an instance where it begins")
        fields = dict(zip(_FIELDS, point, strict=True))
        epoch, number, unread = (whole(fields, field, name) for field in _FIELDS[2:])
        stored = StoredRound(Epoch(epoch), Round(number))
        points[origin_of(fields, name)] = SafePoint(stored, OutputNumber(unread))
    return points
