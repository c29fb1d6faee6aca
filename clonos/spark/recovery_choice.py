"""What a query may ask for with the recovery that it has chosen; refused when it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clonos.errors import QueryDefinitionError
from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.on_gap import OnGap
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sinks.batch_sink import BatchSink
from clonos.spark.plan import OperatorPlan, PlanNode, SinkPlan
from clonos.spark.settings import Settings

_CAUSAL = "Set spark.clonos.recovery=causal"


def own_recoveries(nodes: Mapping[NodeId, PlanNode]) -> dict[NodeId, RecoveryKind]:
    """Of the operators that say which one they have."""
    return {
        number: RecoveryKind(node.binding.recovery)
        for number, node in nodes.items()
        if isinstance(node, OperatorPlan) and node.binding.recovery is not None
    }


def check_recovery(
    settings: Settings, nodes: Iterable[PlanNode], holding: Iterable[SinkPlan], *, realtime: bool
) -> None:
    """`holding` are the sinks that hold rows. Raises QueryDefinitionError."""
    recovery, on_gap = settings.recovery, settings.on_gap
    operators = [node for node in nodes if isinstance(node, OperatorPlan)]
    for node in operators:
        _check_own(recovery, node)
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
    for node in operators:
        _check_operator(said, node, settings.standby)
    for sink in holding:
        if isinstance(sink.sink, BatchSink):
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


def _check_own(recovery: RecoveryKind, node: OperatorPlan) -> None:
    """Operators go together that leave the same in a checkpoint."""
    own = RecoveryKind(node.binding.recovery or recovery.value)
    if own is not recovery and not (own.logs_messages and recovery.logs_messages):
        raise QueryDefinitionError(
            f"operator {node.binding.name!r} has recovery={own.value!r} in a query of spark.clonos.recovery="
            f"{recovery.value}: in one query there may be eager and uncoordinated checkpoints, or one recovery alone",
            hint=f"Set spark.clonos.recovery to uncoordinated or to eager, or leave recovery={own.value!r} out",
        )
