"""`a.join(b, on, within=...)`: a join of two streams by key and event time, as an operator with two inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clonos.api.connected import ConnectedStreams
from clonos.api.grouped import keyed
from clonos.api.joined_columns import joined_columns, others
from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError
from clonos.operators.process import ConnectOperator
from clonos.operators.stream_join import Side, StreamJoin
from clonos.protocol.versions.kind_of_version import version_of_kind
from clonos.spark.plan import Binding
from clonos.spark.types import delay_microseconds
from clonos.spark.versions import items_of

_HOW = {"inner": False, "left": True, "leftouter": True, "left_outer": True}


def join(
    left: CausalStream,
    right: CausalStream,
    on: Any,
    how: str,
    *,
    within: str,
    binding: Binding,
    previous: Mapping[str, tuple[str, str]] | None,
) -> CausalStream:
    """Raises QueryDefinitionError."""
    name, said = binding.name, binding.version
    if not isinstance(right, CausalStream):
        raise QueryDefinitionError(
            f"{name!r} is joined with a causal stream, not with a {type(right).__name__}",
            hint="Call causal() on a streaming DataFrame; leave within= out to join with a table",
        )
    columns = [on] if isinstance(on, str) else on
    if not isinstance(columns, list | tuple) or not all(isinstance(column, str) for column in columns):
        raise QueryDefinitionError(
            f"{name!r} is joined on {on!r}", hint='Give the names of columns that both have: on="id"'
        )
    grouped = ConnectedStreams(left, right).groupBy(list(columns))
    left_key, right_key = grouped.keys
    sides = _side(left, left_key, name), _side(right, right_key, name)
    kind = _Kind.of(how, within, left, name)

    def function(kind: _Kind) -> tuple[Any, ...]:
        made = StreamJoin(sides[0], sides[1], kind.within, outer=kind.outer, zone=left.timezone)
        return made.left, made.right, made.expired, None

    older = {version: _older(given, left, name) for version, given in items_of(previous, binding)}
    functions = {said: function(kind)}  # as versions were called before they said the kind of the join
    functions |= {each.version(version): function(each) for version, each in older.items()}
    joined = keyed(
        left,
        left_key,
        ConnectOperator,
        lambda given: given,
        function(kind),
        joined_columns(
            (left.schema, left_key),
            (right.schema, right_key),
            outer=kind.outer,
            said=f"both streams of {name!r}",
            hint="Rename it in one of them: on the source DataFrame before causal(), or in a map()",
        ),
        replace(binding, version=kind.version(said)),
        previous=functions,
        side_outputs=None,
        right=grouped.second,
        output_trails=kind.within,
    )
    assert left.event_time is not None
    trails = left.event_time.delay_at_least + kind.within
    return joined._with_event_time(left.event_time._replace(inherited=True, trails=trails))


def _older(given: Any, stream: CausalStream, name: str) -> _Kind:
    if not isinstance(given, tuple) or len(given) != 2:
        raise QueryDefinitionError(
            f"a version of the join {name!r} is given by how= and within= as it had them, not by {given!r}",
            hint='Give previous={"1": ("inner", "10 minutes")}',
        )
    return _Kind.of(*given, stream, name)


@dataclass(frozen=True)
class _Kind:
    """What a join is, beside its columns. It is part of the version: what it was like before is repeated like that."""

    outer: bool
    within: int

    @classmethod
    def of(cls, how: Any, within: Any, stream: CausalStream, name: str) -> _Kind:
        outer = _HOW.get(how.lower()) if isinstance(how, str) else None
        if outer is None:
            raise QueryDefinitionError(
                f"{name!r} is a join of kind {how!r}",
                hint='Streams are joined with how="inner" or how="left"',
            )
        return cls(outer, delay_microseconds(stream._spark, within, "the bound of a join, within="))

    def version(self, said: str) -> str:
        return version_of_kind(said, f"{'left' if self.outer else 'inner'}, within {self.within}")


def _side(stream: CausalStream, key: tuple[str, ...], name: str) -> Side:
    if stream.event_time is None:
        raise QueryDefinitionError(
            f"{name!r} joins a stream that has no watermark: what it keeps would never be dropped",
            hint="Call withWatermark(column, delay) on both streams, behind causal(...)",
        )
    names = stream.schema.names
    values = others(stream.schema, key)
    return Side(names.index(stream.event_time.column), tuple(map(names.index, values)), values)
