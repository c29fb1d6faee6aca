"""What a query may ask for with the recovery that it has chosen; refused when it starts."""

from __future__ import annotations

from collections.abc import Iterable

from clonos.errors import QueryDefinitionError
from clonos.protocol.recovery.on_gap import OnGap
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sinks.batch_sink import BatchSink
from clonos.spark.plan import OperatorPlan, PlanNode, SinkPlan

_CAUSAL = "Set spark.clonos.recovery=causal"


def check_recovery(
    recovery: RecoveryKind,
    nodes: Iterable[PlanNode],
    sinks: Iterable[SinkPlan],
    *,
    standby: str,
    on_gap: OnGap,
    realtime: bool,
) -> None:
    """`standby` is what operators have that do not say it. Raises QueryDefinitionError."""
    if recovery is RecoveryKind.CAUSAL:
        return
    said = f"spark.clonos.recovery={recovery.value}"
    if not realtime:
        raise QueryDefinitionError(
            f"{said} is for real time: in micro-batch Spark runs single tasks of an epoch again, and others have seen "
            "what they did",
            hint=f"Call .trigger(realTime=...). {_CAUSAL} for micro-batch",
        )
    if on_gap is not OnGap.FAIL:
        raise QueryDefinitionError(
            f"{said}: spark.clonos.onGap={on_gap.value} is about determinants that are gone, and there are none",
            hint=f"Leave spark.clonos.onGap out. {_CAUSAL} to go on behind a gap",
        )
    for node in nodes:
        if isinstance(node, OperatorPlan):
            _check_operator(said, node, standby)
    for sink in sinks:
        if isinstance(sink.sink, BatchSink) and not recovery.replaces:
            raise QueryDefinitionError(
                f"{said}: a batch of foreachBatch, of a table, or of the console ends with an epoch, and what a sink "
                "holds may be seen later",
                hint=f"Give another sink. {_CAUSAL} for these",
            )


def _check_operator(said: str, node: OperatorPlan, standby: str) -> None:
    name, binding = node.binding.name, node.binding
    if (binding.standby or standby) != "none":
        raise QueryDefinitionError(
            f"{said}: operator {name!r} has a standby, which takes the place of a lost process by repeating what it "
            "did, and that is not recorded",
            hint=f"Leave standby out. {_CAUSAL} for standbys",
        )
    if binding.on_poison != "fail":
        raise QueryDefinitionError(
            f"{said}: operator {name!r} has on_poison={binding.on_poison!r}, and records are not run one by one again",
            hint=f"Leave on_poison out. {_CAUSAL} to pass such records over",
        )
