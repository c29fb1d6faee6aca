"""What an instance of an operator is, read from the operator's part of the query spec."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from clonos.operators.rows import instant, is_right, values_at, zone_of
from clonos.operators.types import key_kind
from clonos.protocol.destination import KeyColumn, KeyKind, Reader, Router, Routing, route_by_key, route_to
from clonos.protocol.engine.instance import InstanceConfig, Row
from clonos.protocol.ids import InstanceId, Origin
from clonos.protocol.recovery.uncoordinated.independent_checkpoints import own_limits
from clonos.protocol.roles.snapshot_schedule import SnapshotLimits
from clonos.protocol.side_output import MAIN
from clonos.protocol.versions.programs import Programs
from clonos.values.grouping_keys import key_of
from clonos_standby.cluster.spec import EventColumn, NodeSpec, ReplicaSettings, Route, RouteKind
from clonos_standby.replica.batches import EncodedRows, SplitRows

_WALL_START: Final = dt.datetime(1970, 1, 1)


def instance_config(
    node: NodeSpec, origin: Origin, operator: Programs, *, tells_folds: bool
) -> InstanceConfig:
    """`tells_folds` says whether the state keeps the two instants of a repeated hour under two keys."""
    return InstanceConfig(
        name=node.name,
        origin=origin,
        routing=Routing(
            [
                Reader(
                    _router(node, route, origin.instance),
                    route.parallelism,
                    route.output,
                    route.has_event_time,
                    _latest_of(route, node.zone),
                    route.trails,
                    route.waits,
                )
                for route in node.routes
            ],
            has_side_outputs=len(node.outputs) > 1,
        ),
        keys_of=keys_of(node, tells_folds),
        depth=node.policy.sharing_depth(node.depth),
        recording=node.recording and node.recovery.repeats,
        marks_checkpoints=node.policy.marks_checkpoints,
        per_epoch=operator.per_epoch,
        event_inputs=node.event_inputs,
        watermark_of=watermark_of_rows(node.event_time, node.zone),
        programs=operator,
    )


def snapshot_limits(settings: ReplicaSettings, node: NodeSpec, origin: Origin) -> SnapshotLimits:
    """When an instance takes snapshots alone, if it does."""
    if node.recovery.repeats:
        return SnapshotLimits(settings.snapshot_work, settings.snapshot_interval)
    return own_limits(origin, settings.round_interval)


def _router(node: NodeSpec, route: Route, instance: InstanceId) -> Router:
    if route.kind is RouteKind.KEY:
        return route_by_key(_key_columns(node, route), route.parallelism, zone=zone_of(node.zone) or dt.UTC)
    return route_to(instance % route.parallelism)


def _key_columns(node: NodeSpec, route: Route) -> list[KeyColumn]:
    output = node.outputs[route.output]
    return [KeyColumn(index, key_kind(output.field(index).type)) for index in route.columns]


def keys_of(node: NodeSpec, tells_folds: bool) -> Callable[[list[Row]], list[Row]]:
    left = _keys_of(node.key, node.input, tells_folds)
    if node.right is None:
        return left
    right = _keys_of(node.right.key, node.right.schema, tells_folds)

    def of_both(rows: list[Row]) -> list[Row]:
        sides = [is_right(row) for row in rows]
        keys = [
            iter(of_side([row for row, at in zip(rows, sides, strict=True) if at == side]))
            for side, of_side in ((False, left), (True, right))
        ]
        return [next(keys[side]) for side in sides]

    return of_both


def _keys_of(
    columns: tuple[int, ...], schema: pa.Schema, tells_folds: bool
) -> Callable[[list[Row]], list[Row]]:
    if not columns:
        return lambda rows: [()] * len(rows)
    if tells_folds and any(key_kind(schema.field(c).type) is KeyKind.TIMESTAMP for c in columns):
        return lambda rows: [key_of([row[c] for c in columns]) for row in rows]
    return lambda rows: list(zip(*[values_at(column, rows) for column in columns], strict=True))


def _latest_of(route: Route, zone: str) -> Callable[[EncodedRows | SplitRows], int | None] | None:
    """What the rows of an output say of event time."""
    if route.event_time is None:
        return None
    column, delay = route.event_time
    local = zone_of(zone) or dt.UTC

    def reached(rows: EncodedRows | SplitRows) -> int | None:
        part = rows.parts.get(route.output) if isinstance(rows, SplitRows) else rows
        if part is None or (isinstance(rows, EncodedRows) and route.output != MAIN):
            return None
        latest = pc.max(part.arrays[column])
        moment: int | None = latest.value
        if moment is not None and latest.type.tz is None:  # a wall clock's, in the zone of the query
            moment = instant(_WALL_START + dt.timedelta(microseconds=moment), local)
        return None if moment is None else moment - delay

    return reached


def watermark_of_rows(event_time: EventColumn | None, zone: str) -> Callable[[list[Row]], int | None] | None:
    """The latest event time of records less the delay; None where none of them has one."""
    if event_time is None:
        return None
    column, delay = event_time
    local = zone_of(zone) or dt.UTC

    def reached(rows: list[Row]) -> int | None:
        latest = max((moment for moment in values_at(column, rows) if moment is not None), default=None)
        return None if latest is None else instant(latest, local) - delay

    return reached
