"""What a query may ask for with the recovery that it has chosen; refused when it starts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from clonos.errors import QueryDefinitionError
from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.dependence import Determinism
from clonos.protocol.recovery.on_gap import OnGap
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Topology
from clonos.sinks.batch_sink import BatchSink
from clonos.spark.plan import OperatorPlan, PlanNode, SinkPlan
from clonos.spark.settings import Settings

LOG = logging.getLogger("clonos")

_TOGETHER: Final = (
    "in one query there may be eager and event_log ones, and beside them causal ones; coordinated ones, or unaligned "
    "ones; or batch and uncoordinated, or communication_induced, ones"
)


def own_recoveries(nodes: Mapping[NodeId, PlanNode]) -> dict[NodeId, RecoveryKind]:
    """Of the operators that say which one they have."""
    return {
        number: RecoveryKind(node.binding.recovery)
        for number, node in nodes.items()
        if isinstance(node, OperatorPlan) and node.binding.recovery is not None
    }


def check_recovery(
    settings: Settings,
    nodes: Mapping[NodeId, PlanNode],
    holding: Iterable[SinkPlan],
    recoveries: Recoveries,
    *,
    realtime: bool,
) -> None:
    """`holding` are the sinks that hold rows. Raises QueryDefinitionError."""
    recovery, on_gap = settings.recovery, settings.on_gap
    operators = [node for node in nodes.values() if isinstance(node, OperatorPlan)]
    for node in operators:
        _check_own(recovery, node, realtime=realtime)
    _check_together(recovery, operators)
    for number, kind in own_recoveries(nodes).items():
        _check_behind(kind, recoveries.by_node[number], nodes[number])
    for number, each in nodes.items():
        if isinstance(each, OperatorPlan):
            _check_claim(recoveries.by_node[number], each, realtime=realtime)
    _check_archive(settings, operators, recoveries)
    if recoveries.all_repeat:
        return
    said, causal = f"spark.clonos.recovery={recovery.value}", _causal_instead(operators)
    others = {kind for kind in recoveries.by_node.values() if not kind.in_micro_batch}
    if not realtime and others:
        own = _who_goes_back(recovery, operators)
        raise QueryDefinitionError(
            f"{said if not own else said + own}: {' and '.join(sorted(kind.value for kind in others))} checkpoints are "
            "for real time: in micro-batch nothing of an epoch is seen before it has ended, and Spark runs its tasks "
            "again",
            hint="Set spark.clonos.recovery=batch, and leave recovery= out, or call .trigger(realTime=...). "
            f"{causal} for rows at once in micro-batch",
        )
    if on_gap is not OnGap.FAIL:
        why, instead = "determinants that are gone, and there are none", f"{causal} to go on behind a gap"
        if recoveries.some_repeat:
            why = "determinants that are gone: what would be made differently, operators of other recoveries have kept"
            instead = "Behind a gap restore what is lost, or begin anew with a new checkpoint and a new sink"
        raise QueryDefinitionError(
            f"{said}: spark.clonos.onGap={on_gap.value} is about {why}",
            hint=f"Leave spark.clonos.onGap out. {instead}",
        )
    for number, each in nodes.items():
        if isinstance(each, OperatorPlan) and not recoveries.repeats(number):
            # That of others
            standby = "none" if recovery.repeats or recoveries.some_repeat else settings.standby
            _check_operator(each, recovery, causal, standby=standby)
    if realtime and any(isinstance(sink.sink, BatchSink) for sink in holding):
        eager = "" if recovery.begins_epochs_again else ", or recovery='eager' to the operators before it"
        raise QueryDefinitionError(
            f"{said}: a batch of foreachBatch, of a table, or of the console ends with an epoch, and what a sink holds "
            "may be seen later" + _who_goes_back(recovery, operators),
            hint=f"Give another sink{eager}. {causal} for these",
        )


def _who_goes_back(recovery: RecoveryKind, operators: Iterable[OperatorPlan]) -> str:
    """Those that have another recovery than the query."""
    own = [each.binding for each in operators if each.binding.recovery not in (None, recovery.value)]
    return "".join(f"; {each.name!r} has recovery={each.recovery!r}" for each in own)


def tell_who_goes_back(recoveries: Recoveries, topology: Topology) -> None:
    """An operator was given eager checkpoints so that its rows are seen at once, and they are not."""
    for number, kind in recoveries.by_node.items():
        if kind.sends_late and number in recoveries.goes_back:
            before = recoveries.sent_back_by(topology, number)
            kinds = sorted({recoveries.by_node[NodeId(node.number)].value for node in before})
            LOG.warning(
                "the rows of %r, which are stored before they are sent, are not seen at once: it goes back with %s, "
                "which %s %s checkpoints. Give recovery='eager' there, too",
                topology.node(number).name,
                " and ".join(repr(node.name) for node in before),
                "has" if len(before) == 1 else "have",
                " and ".join(kinds),
            )


def _check_operator(node: OperatorPlan, recovery: RecoveryKind, causal: str, *, standby: str) -> None:
    name, binding = node.binding.name, node.binding
    said = f"recovery={binding.recovery or recovery.value}"
    if (binding.standby or standby) != "none":
        raise QueryDefinitionError(
            f"{said}: operator {name!r} has a standby, which takes the place of a lost process by repeating what it "
            "did, and that is not recorded",
            hint=f"Leave {'standby' if binding.standby else 'spark.clonos.standby'} out. {causal} for standbys",
        )
    if binding.on_poison != "fail":
        raise QueryDefinitionError(
            f"{said}: operator {name!r} has on_poison={binding.on_poison!r}, and records are not run one by one again",
            hint=f"Leave on_poison out. {causal} to pass such records over",
        )


def _check_behind(own: RecoveryKind, kind: RecoveryKind, node: PlanNode) -> None:
    """An operator has been given checkpoints that no line ever begins with."""
    if own is not kind:
        assert isinstance(node, OperatorPlan)
        raise QueryDefinitionError(
            f"operator {node.binding.name!r} has recovery={own.value!r}, and is behind one of recovery={kind.value!r}, "
            "which does an epoch again as a whole: so does what is behind it, and no checkpoint inside an epoch counts",
            hint=f"Leave recovery={own.value!r} out; to have it here, give eager or uncoordinated checkpoints to all "
            "operators in front of it",
        )


def _check_own(recovery: RecoveryKind, node: OperatorPlan, *, realtime: bool) -> None:
    """Operators go together through which one line can be drawn."""
    own = RecoveryKind(node.binding.recovery or recovery.value)
    if own is not recovery and not realtime:
        leave = f"Leave recovery={own.value!r} out"
        instead = f"Set spark.clonos.recovery={own.value}" if own.in_micro_batch else leave
        raise QueryDefinitionError(
            f"operator {node.binding.name!r} has recovery={own.value!r} in a query of spark.clonos.recovery="
            f"{recovery.value}: in micro-batch all operators have that of the query",
            hint=f"{instead}, or call .trigger(realTime=...)",
        )
    if own.goes_with(recovery):
        return
    *most, last = (kind.value for kind in RecoveryKind if own.goes_with(kind))
    raise QueryDefinitionError(
        f"operator {node.binding.name!r} has recovery={own.value!r} in a query of spark.clonos.recovery="
        f"{recovery.value}: {_TOGETHER}",
        hint=f"Set spark.clonos.recovery to {', '.join(most)} or {last}, or leave recovery={own.value!r} out",
    )


def _check_together(recovery: RecoveryKind, operators: Iterable[OperatorPlan]) -> None:
    """Those that go with that of the query go with each other."""
    kinds = {RecoveryKind(node.binding.recovery or recovery.value): node.binding.name for node in operators}
    for kind, name in kinds.items():
        for other, beside in kinds.items():
            if not kind.goes_with(other):
                raise QueryDefinitionError(
                    f"operator {name!r} has recovery={kind.value!r}, and operator {beside!r} has {other.value!r}: "
                    f"{_TOGETHER}",
                    hint="Give both eager, or either what the other has",
                )


def _check_archive(settings: Settings, operators: Iterable[OperatorPlan], recoveries: Recoveries) -> None:
    """What is repeated is what was recorded. The refusal names the settings, and the operators, at fault alone."""
    if settings.archive_lineage and not settings.archive_keep:
        raise QueryDefinitionError(
            "spark.clonos.archive.lineage is set, and there is no archive that it could be recorded in",
            hint="Set spark.clonos.archive.keep, as 30 days, or leave archive.lineage out",
        )
    if settings.archive_keep and not settings.recording:
        raise QueryDefinitionError(
            "spark.clonos.archive.keep is set, and spark.clonos.recording is false: nothing is recorded that could be "
            "kept",
            hint="Leave spark.clonos.recording out, or archive.keep",
        )
    if not settings.archive_keep or recoveries.all_repeat:
        return
    others = [
        each.binding for each in operators if each.binding.recovery not in (None, RecoveryKind.CAUSAL.value)
    ]
    faults = [f"operator {each.name!r} has recovery={each.recovery!r}" for each in others]
    steps = [f"leave recovery= of {', '.join(repr(each.name) for each in others)} out"] if others else []
    if not settings.recovery.repeats:
        faults.insert(0, f"spark.clonos.recovery={settings.recovery.value}")
        steps.insert(0, "set spark.clonos.recovery=causal")
    instead = " and ".join(steps)
    raise QueryDefinitionError(
        "spark.clonos.archive.keep is set, and not all operators record what they do: " + "; ".join(faults),
        hint=f"{instead[:1].upper()}{instead[1:]}, or leave archive.keep out",
    )


def _check_claim(kind: RecoveryKind, node: OperatorPlan, *, realtime: bool) -> None:
    """Of what nothing records a replay says something else."""
    if node.binding.claims is not Determinism.HIDDEN or not kind.repeats:
        return
    instead = (
        "eager where rows are to be seen at once, or coordinated where they may be seen with their round"
        if realtime
        else "batch, which shows rows when their epoch has committed"
    )
    own = "Give it recovery='eager'. " if realtime else ""
    raise QueryDefinitionError(
        f"operator {node.binding.name!r} claims that it depends on what nothing records, and with spark.clonos."
        f"recovery={kind.value} another process repeats what a lost one did: it would come out differently",
        hint=f"{own}Set spark.clonos.recovery to {instead}. Or ask ctx for what it depends on, and claim 'recorded'",
    )


def _causal_instead(nodes: Iterable[OperatorPlan]) -> str:
    """How the query has causal logging instead."""
    own = ", ".join(repr(node.binding.name) for node in nodes if node.binding.recovery is not None)
    return "Set spark.clonos.recovery=causal" + (f", and leave recovery= of {own} out," if own else "")
