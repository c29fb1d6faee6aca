"""Truncation points in a message: for each instance the log offset before which its log is not asked for any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clonos.errors import ProtocolError
from clonos.protocol.ids import LogOffset, Origin
from clonos.wire.json_fields import origin_of, whole


def pack_points(points: Mapping[Origin, LogOffset]) -> list[list[int]]:
    """`[node, instance, offset]` of each, since neither JSON nor msgpack has pairs for keys."""
    return [[*origin, offset] for origin, offset in points.items()]


def parse_points(said: Any, name: str) -> dict[Origin, LogOffset]:
    """Raises ProtocolError for anything else."""
    if not isinstance(said, list):
        raise ProtocolError(f"{name}: truncation_points {said!r} is not a list")
    points: dict[Origin, LogOffset] = {}
    for point in said:
        if not isinstance(point, list) or len(point) != 3:
            raise ProtocolError(f"{name}: {point!r} is not a node, an instance and a log offset")
        fields = dict(zip(("node", "instance", "offset"), point, strict=True))
        points[origin_of(fields, name)] = LogOffset(whole(fields, "offset", name))
    return points
