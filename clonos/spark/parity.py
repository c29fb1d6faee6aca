"""What a call of PySpark's stateful functions covers, and what is told of that when such an operator is defined."""

from __future__ import annotations

import logging

from clonos.errors import QueryDefinitionError
from clonos.spark.plan import Binding, OperatorPlan, Upstream, in_order, node_of

__all__ = ["check_append", "check_streams", "covered", "tell_what_differs"]

LOG = logging.getLogger("clonos")


def covered(per: str | None) -> str:
    """What a call covers where nothing is said."""
    return "bundle" if per is None else per


def tell_what_differs(
    binding: Binding,
    per: str | None,
    here: str = "is called once per key and bundle",
    there: str = "Spark calls it once",
) -> None:
    """Warn where the same may give something else than in Spark, unless the user has said that it is meant."""
    if per is None:
        LOG.warning(
            "%r %s, in micro-batch several times per batch; %s: "
            "per='batch' does so here, per='bundle' says that this is meant",
            binding.name,
            here,
            there,
        )


def check_streams(roots: tuple[Upstream, ...]) -> None:
    """In real time records do not wait for the end of an epoch, which is minutes away."""
    for node in in_order(roots):
        if isinstance(node, OperatorPlan) and node.binding.gathers:
            raise QueryDefinitionError(
                f"{node.binding.name!r} is called once per key and micro-batch (per='batch'), which real time lacks",
                hint="Use per='bundle', or a trigger of processingTime or availableNow",
            )
        if isinstance(node, OperatorPlan):
            for upstream in node.all_upstream:
                _tell_of_time_without_channels(node, upstream)


def _tell_of_time_without_channels(node: OperatorPlan, upstream: Upstream) -> None:
    """Warn where rows may be late because an operator has read one partition ahead of another."""
    sender, time = node_of(upstream), node.event_time_for(upstream)
    if isinstance(sender, OperatorPlan) and time is not None and not sender.has_event_time:
        LOG.warning(
            "rows for %r may be late over a backlog, as after a pause: its watermark goes by the latest rows of %r, "
            "which may read one partition far ahead of another. With withWatermark(%r, ...) in front of %r, too, the "
            "slower one is waited for",
            node.binding.name,
            sender.binding.name,
            time.column,
            sender.binding.name,
        )


def check_append(roots: tuple[Upstream, ...]) -> None:
    """Spark's append mode shows a result once, when no row can change it any more."""
    for node in in_order(roots):
        if isinstance(node, OperatorPlan) and node.gives_updates:
            raise QueryDefinitionError(
                f"output mode 'append' shows each result once, and {node.binding.name!r} gives a key's result again "
                "whenever rows have changed it",
                hint="Use 'update', or .window(...) before the aggregate: the result comes once, when its window ends",
            )
