"""`agg`, `count`, `sum` and their like of a causal stream by key, with Spark's own names, types and results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from clonos.spark.aggregation import Own, aggregation
from clonos.spark.parity import covered, tell_what_differs
from clonos.spark.plan import Binding

if TYPE_CHECKING:
    from clonos.api.streams import CausalStream


def aggregated(
    stream: CausalStream,
    key: tuple[str, ...],
    own: Own,
    *,
    called: str,
    name: str | None = None,
    version: str = "1",
    parallelism: int | None = None,
    standby: str | None = None,
    recovery: str | None = None,
    per: str | None = None,
) -> CausalStream:
    """The stream of the results of what `own` makes of the rows by key, with a name after `called` unless it is given
    one. Raises QueryDefinitionError, and Spark's own AnalysisException."""
    from clonos.api.streams import arrow
    from clonos.operators.aggregate_operator import AggregateOperator

    made, schema = aggregation(stream._spark_columns, stream.columns, key, own)
    covers = covered(per)
    binding = Binding.after(
        called, name, version, parallelism, standby=standby, recovery=recovery, per=covers
    )
    tell_what_differs(binding, per, "gives a row for each key and bundle", "Spark gives one")

    def operator(given: Any, called: str) -> Callable[[], Any]:
        return partial(AggregateOperator, made, arrow(schema), name=called, per=covers)

    return stream._then(key, operator, schema, binding, gives_updates=True)
