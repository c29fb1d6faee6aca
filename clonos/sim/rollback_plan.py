"""The run of a seed with a recovery that repeats nothing: what of a plan means something there."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import NodeKind
from clonos.sim.plan import FILES_RATE, Fault, Plan, SinkKind

_OF_LOGS: Final = frozenset(
    {
        Fault.STORE_LOST,
        Fault.STORE_TAIL,
        Fault.STORE_PAGE,
        Fault.TORN_TAIL,
        Fault.STORE_UNREADABLE,
        Fault.SINK_LOG_PAGE,
        Fault.SERVICE_DOWN,
        Fault.SERVICE_BUSY,
        Fault.REPLY_CUT,
        Fault.HOLDERS_UNKNOWN,
        Fault.DIRECTORY_UNREADABLE,
        Fault.DIRECTORY_LOST,
    }
)
_MEANINGLESS: Final = _OF_LOGS | {Fault.FILES_LOST, Fault.SNAPSHOT_PAGE, Fault.SINK_MOVED}
"""Nothing is asked of logs; no epoch is run in stages; what ends such a query by its promise is left out."""
_BEYOND_CALLS: Final = frozenset({Fault.CHECKPOINT_OLDER, Fault.PROGRAM_CHANGED})
"""A call under way takes effect after a start from an older copy, or of another program, has looked at what is visible
(docs/limits.md)."""

_STORED_FIRST: Final = (RecoveryKind.EAGER, RecoveryKind.EVENT_LOG)


def mixed(plan: Plan) -> Plan:
    """The same with uncoordinated checkpoints, and eager ones of some operators; where there are many, one may do its
    epochs again as a whole."""
    plan = rolled_back(plan, RecoveryKind.UNCOORDINATED)
    rng = Random(f"{plan.seed}/mixed")
    operators = [node.number for node in plan.dataflow.topology.nodes if node.kind is NodeKind.OPERATOR]
    eager = [NodeId(number) for number in operators if rng.random() < 0.5] or [NodeId(rng.choice(operators))]
    kind = Random(f"{plan.seed}/logged").choice((RecoveryKind.EAGER, RecoveryKind.EVENT_LOG))
    own = dict.fromkeys(eager, kind)
    again = Random(f"{plan.seed}/again")
    if len(operators) > 1 and again.random() < 0.4:
        own[NodeId(again.choice(operators[1:]))] = RecoveryKind.BATCH
    return replace(plan, own_recoveries=tuple(own.items()))


def mixed_with_causal(plan: Plan) -> Plan:
    """The same with causal logging, and eager checkpoints of some operators."""
    rates = [(kind, rate) for kind, rate in plan.rates if kind in _OF_LOGS]
    rolled = rolled_back(plan, RecoveryKind.EAGER)
    plan = replace(
        rolled,
        recovery=RecoveryKind.CAUSAL,
        effects=plan.effects,
        standbys=plan.standbys,
        switches=plan.switches,
        passive=plan.passive,
        rates=tuple(sorted([*rolled.rates, *rates], key=lambda each: each[0].name)),
    )
    rng = Random(f"{plan.seed}/mixed with causal")
    operators = [NodeId(node.number) for node in plan.dataflow.operators]
    kind = rng.choice((RecoveryKind.EAGER, RecoveryKind.EVENT_LOG))
    own = {node: kind for node in operators if rng.random() < 0.5} or {rng.choice(operators): kind}
    return replace(plan, own_recoveries=tuple(own.items()))


def mixed_with_induced(plan: Plan) -> Plan:
    """The same with communication-induced checkpoints, and eager ones of some operators; one may do its epochs again
    as a whole."""
    plan = rolled_back(plan, RecoveryKind.COMMUNICATION_INDUCED)
    rng = Random(f"{plan.seed}/mixed with induced")
    operators = [NodeId(node.number) for node in plan.dataflow.operators]
    own = {node: rng.choice(_STORED_FIRST) for node in operators if rng.random() < 0.5}
    if len(operators) > 1 and rng.random() < 0.2:
        own[rng.choice(operators[1:])] = RecoveryKind.BATCH
    own = own or {rng.choice(operators): rng.choice(_STORED_FIRST)}
    return replace(plan, own_recoveries=tuple(own.items()))


def mixed_with_rounds(plan: Plan) -> Plan:
    """The same with coordinated checkpoints, aligned or not, and eager ones of some operators."""
    rng = Random(f"{plan.seed}/mixed with rounds")
    plan = rolled_back(plan, rng.choice((RecoveryKind.COORDINATED, RecoveryKind.UNALIGNED)))
    operators = [NodeId(node.number) for node in plan.dataflow.operators]
    others = rng.sample(operators, rng.randint(1, max(len(operators) - 1, 1)))
    own = {node: rng.choice(_STORED_FIRST) for node in sorted(others)}
    return replace(plan, own_recoveries=tuple(own.items()))


def rolled_back(plan: Plan, recovery: RecoveryKind) -> Plan:
    """The same with this recovery, in real time unless that is to be had in micro-batch, too, and without what only
    causal logging offers. Functions may reach for entropy behind the back of the services: nothing is ever repeated
    that was seen."""
    rng = Random(f"{plan.seed}/{recovery.value}")
    left_out = _MEANINGLESS | (_BEYOND_CALLS if SinkKind.CALL in plan.sink_kinds.values() else frozenset())
    rates = {kind: rate for kind, rate in plan.rates if kind not in left_out}
    realtime = plan.realtime or not recovery.in_micro_batch
    if not realtime:
        rates[Fault.FILES_LOST] = FILES_RATE
        rates.pop(Fault.SNAPSHOTS_GONE, None)  # no log says that an instance has run (docs/recoveries.md)
    return replace(
        plan,
        recovery=recovery,
        round_interval=rng.choice((0.002, 0.01, 0.05)),
        realtime=realtime,
        resumes=True,
        standbys=0,
        switches=0,
        effects=False,
        poison=0,
        per_epoch=plan.per_epoch and not realtime,
        skips_idle=plan.skips_idle and not realtime,
        impure=rng.random() < 0.3,
        executors=False,
        spreads=False,
        rates=tuple(rates.items()),
    )
