"""Two streams with schemas of their own, processed under one key by one operator: `clonos.connect(a, b)`.

    clonos.connect(orders, payments).groupBy("id").process(left=ordered, right=paid, output=..., name="match")

Both functions of an operator share the state and the timers of the key. In which order records of the two inputs come
is recorded, as it is for a union.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from clonos.api.grouped import keyed
from clonos.api.grouping_columns import key_columns, key_types
from clonos.api.streams import CausalStream
from clonos.errors import QueryDefinitionError
from clonos.spark.plan import Binding, RightPlan
from clonos.spark.versions import Previous, parts

if TYPE_CHECKING:
    from clonos.operators.calls import Calls

_KEYS = 'Write groupBy("id"), or groupBy(left="id", right="order_id")'

Migrate = Callable[[dict[Any, Any], str], dict[Any, Any]]


def connect(left: CausalStream, right: CausalStream) -> ConnectedStreams:
    """Two streams that go to one operator, each to a function of its own. Raises QueryDefinitionError."""
    for stream in (left, right):
        if not isinstance(stream, CausalStream):
            raise QueryDefinitionError(
                "causal streams are connected with each other", hint="Call causal() on both"
            )
    return ConnectedStreams(left, right)


class ConnectedStreams:
    """What `connect` returns."""

    def __init__(self, left: CausalStream, right: CausalStream) -> None:
        self._left = left
        self._right = right

    def groupBy(self, *columns: Any, left: Any = None, right: Any = None) -> GroupedConnectedStreams:
        """By columns that both have, or by columns of each: `left=["id"], right=["order_id"]`. Their types agree."""
        if bool(columns) == (left is not None or right is not None):
            raise QueryDefinitionError(
                "connected streams are grouped by columns that both have, or by left= and right=", hint=_KEYS
            )
        for side, own in (("left", left), ("right", right)):
            if not columns and own is None:
                raise QueryDefinitionError(
                    f"groupBy lacks {side}=, the key columns of the {side} stream", hint=_KEYS
                )
        keys = [
            key_columns(stream, columns or (own,))
            for stream, own in ((self._left, left), (self._right, right))
        ]
        if len(keys[0]) != len(keys[1]):
            of_left, of_right = (f"{len(key)} ({', '.join(key)})" for key in keys)
            raise QueryDefinitionError(
                "the keys of connected streams have different numbers of columns: "
                f"{of_left} on the left and {of_right} on the right",
                hint="Give each column of the one key its counterpart in the other, in the same order",
            )
        left, right = key_types(self._left.schema, keys[0]), key_types(self._right.schema, keys[1])
        if left != right:
            raise QueryDefinitionError(
                f"the keys of connected streams have different types: {left} and {right}",
                hint="Cast one of them before causal(), or in a map()",
            )
        return GroupedConnectedStreams(self._left, self._right, *keys)

    groupby = groupBy


class GroupedConnectedStreams:
    """Connected streams by key."""

    def __init__(
        self, left: CausalStream, right: CausalStream, left_key: tuple[str, ...], right_key: tuple[str, ...]
    ) -> None:
        self._left = left
        self._left_key = left_key
        self.keys = left_key, right_key
        self.second = RightPlan(right.plan, right.schema, right_key, right.event_time)

    def process(
        self,
        left: Callable[..., Any],
        right: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        on_timer: Callable[..., Any] | None = None,
        standby: str | None = None,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        migrate: Migrate | None = None,
        side_outputs: Mapping[str, Any] | None = None,
        calls: Calls | None = None,
    ) -> CausalStream:
        """`left(key, row, ctx)` and `right(key, row, ctx)` give iterables of output rows, or None: as `process` of a
        grouped stream, with one state per key for both. `previous={"1": (old_left, old_right)}` (or with its `on_timer`
        and `migrate` behind) repeats what an older version has begun. Functions may be async, as in `process`."""
        from clonos.operators.process import ConnectOperator

        binding = Binding(
            name,
            version,
            parallelism,
            ticks=on_timer is not None,
            standby=standby,
            recovery=recovery,
            on_poison=on_poison,
        )
        return keyed(
            self._left,
            self._left_key,
            ConnectOperator,
            lambda given: _functions(given, name, on_timer),
            (left, right, on_timer, migrate),
            output,
            binding,
            previous=previous,
            side_outputs=side_outputs,
            right=self.second,
            calls=calls,
            may_wait=True,
        )


def _functions(given: Any, name: str, on_timer: Any) -> tuple[Any, ...]:
    """Left, right, on_timer and migrate. Raises QueryDefinitionError."""
    if not isinstance(given, tuple) or len(given) < 2:
        raise QueryDefinitionError(
            f"an older version of {name!r} is given by both of its functions, not by {given!r}",
            hint='Give previous={"1": (old_left, old_right)}',
        )
    left, *others = given
    return (left, *parts(tuple(others), on_timer, None))
