"""`a.join(b, on, within=...)`: a join of two streams by key and event time, as an operator with two inputs."""

from __future__ import annotations

from typing import Any

from clonos.api.connected import ConnectedStreams
from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError
from clonos.operators.stream_join import Side, StreamJoin
from clonos.spark.plan import Binding
from clonos.spark.types import delay_microseconds

_HOW = {"inner": False, "left": True, "leftouter": True, "left_outer": True}


def join(
    left: CausalStream, right: CausalStream, on: Any, how: str, *, within: str, binding: Binding
) -> CausalStream:
    """Raises QueryDefinitionError."""
    name = binding.name
    if not isinstance(right, CausalStream):
        raise QueryDefinitionError(f"{name!r} is joined with a causal stream, not with {right!r}")
    if how not in _HOW:
        raise QueryDefinitionError(
            f"{name!r} is a join of kind {how!r}", hint='Streams are joined with how="inner" or how="left"'
        )
    columns = [on] if isinstance(on, str) else list(on)
    grouped = ConnectedStreams(left, right).groupBy(columns)
    left_key, right_key = grouped.keys
    outer, bound = _HOW[how], delay_microseconds(left._spark, within)
    joined = StreamJoin(
        _side(left, left_key, name), _side(right, right_key, name), bound, outer=outer, zone=left.timezone
    )
    return grouped.process(
        joined.left,
        joined.right,
        _schema(left, right, left_key, right_key, name, outer=outer),
        name=name,
        version=binding.version,
        parallelism=binding.parallelism,
        on_timer=joined.expired,
        standby=binding.standby,
    )


def _side(stream: CausalStream, key: tuple[str, ...], name: str) -> Side:
    if stream.event_time is None:
        raise QueryDefinitionError(
            f"{name!r} joins a stream that has no watermark: what it keeps would never be dropped",
            hint="Call withWatermark(column, delay) on both streams, behind causal(...)",
        )
    names = stream.schema.names
    values = tuple(at for at, column in enumerate(names) if column not in key)
    return Side(names.index(stream.event_time.column), values)


def _schema(
    left: CausalStream,
    right: CausalStream,
    left_key: tuple[str, ...],
    right_key: tuple[str, ...],
    name: str,
    *,
    outer: bool,
) -> Any:
    """The columns of the key, the left stream's others, the right stream's others."""
    from pyspark.sql.types import StructField, StructType

    fields = [left.schema[column] for column in left_key]
    fields += [field for field in left.schema if field.name not in left_key]
    others = [field for field in right.schema if field.name not in right_key]
    twice = sorted({field.name.lower() for field in fields} & {field.name.lower() for field in others})
    if twice:
        raise QueryDefinitionError(
            f"both streams of {name!r} have a column {twice[0]!r} that they are not joined on",
            hint="Rename it in one of them: on the source DataFrame before causal(), or in a map()",
        )
    nullable = [StructField(field.name, field.dataType, field.nullable or outer) for field in others]
    return StructType([*fields, *nullable])
