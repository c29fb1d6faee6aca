"""What a run is made of: the shape of the query, its pace, and which faults may strike how often.

Drawn from the seed, in swarms (Groce et al., "Swarm Testing", ISSTA 2012): each run leaves out a random half of the
kinds of fault and of the features, because a run with everything in it rarely gets far enough into any one thing.
A plan is a value: it can be written down, made smaller and run again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sim.dataflow import Dataflow, draw_dataflow


class Fault(Enum):
    """What may go wrong; the value says it in the trace."""

    REPLICA_CRASH = "replica crashes"
    REPLICA_STOP = "replica stops for a while"
    REPLICA_SLOW = "replica is slow"
    LINK_BREAK = "connection breaks"
    TASK_CRASH = "task attempt is lost"
    TASK_PAUSE = "task attempt pauses"
    TASK_ZOMBIE = "task attempt is given up, but goes on"
    SERVER_CRASH = "replica server is lost with all replicas"
    SERVER_STOP = "replica server stands still for a while, and does not answer"
    SERVICE_DOWN = "determinant service does not answer for a while"
    QUERY_RESTART = "query is restarted"
    DRIVER_LOSS = "driver is lost"
    CONTROL_DROP = "control message is lost"
    CONTROL_REPEAT = "control message comes twice"
    CONTROL_DELAY = "control message is late"
    DISK_FULL = "disk is full for a while"
    STORE_LOST = "causal log store is lost"
    STORE_TAIL = "host restarts: what was not synced is lost"
    STORE_PAGE = "page of a causal log store is damaged"
    SNAPSHOT_PAGE = "page of a snapshot is damaged"
    SINK_LOG_PAGE = "page of a sink's log is damaged"
    SINK_BEFORE = "sink fails before it took effect"
    SINK_AFTER = "sink fails after it took effect"
    SINK_LATE = "sink takes effect late"
    SINK_COMMIT = "sink does not take the commit record"
    SINK_MOVED = "driver is stopped, and a sink given another place"
    CLOCK_JUMP = "clock jumps"
    FILES_LOST = "executor is lost with the shuffle files that an instance wrote"
    DIRECTORY_UNREADABLE = "directory of a holder cannot be read for a while"
    DIRECTORY_LOST = "directory of a holder can never be read again"
    REPLY_CUT = "reply of a holder breaks off"
    HOLDERS_UNKNOWN = "list of the holders cannot be read for a while"
    SERVICE_BUSY = "determinant service takes no more requests for a while"
    STORE_UNREADABLE = "causal log store cannot be opened now"
    HOST_LOST = "host is lost with its replica server and disk, its tasks and the shuffle files they wrote"
    PARTITION = "places cannot reach each other for a while"
    HOST_CLOCK = "a host's time of day jumps, goes back or stands still"
    OLD_DISK = "host comes back with an old copy of its disk"
    POWER_LOSS = "host loses power: everything on it dies, and what was not synced may be gone"
    TORN_TAIL = "power failure leaves zeros, or a hole, in a causal log store"
    PROGRAM_CHANGED = "driver is stopped, and another program started over the checkpoint"
    COMMIT_LOST = "Spark has lost its last commit"
    OFFSETS_LOST = "Spark has lost the end offsets of an epoch, which were not synced, and draws them again"
    CHECKPOINT_OLDER = "checkpoint is restored from an older copy"
    SNAPSHOTS_GONE = "snapshots of an instance are gone"
    SECOND_DRIVER = "a second driver is started"
    DRIVER_PAUSE = "driver stands still for a while"
    DRIVER_CUT = "driver is cut off from the checkpoint for a while"


class SinkKind(Enum):
    TRANSACTION = "transactional table"
    AHEAD = "write-ahead file"
    CALL = "idempotent call"


# Chance of each kind at each of its opportunities: steps, messages or openings, whatever it strikes at.
RATES: dict[Fault, float] = {
    Fault.REPLICA_CRASH: 0.006,
    Fault.REPLICA_STOP: 0.002,
    Fault.REPLICA_SLOW: 0.005,
    Fault.LINK_BREAK: 0.002,
    Fault.TASK_CRASH: 0.002,
    Fault.TASK_PAUSE: 0.002,
    Fault.TASK_ZOMBIE: 0.001,
    Fault.SERVER_CRASH: 0.0004,
    Fault.SERVICE_DOWN: 0.02,
    Fault.QUERY_RESTART: 0.0008,
    Fault.DRIVER_LOSS: 0.0006,
    Fault.CONTROL_DROP: 0.15,
    Fault.CONTROL_REPEAT: 0.15,
    Fault.CONTROL_DELAY: 0.15,
    Fault.DISK_FULL: 0.0005,
    Fault.STORE_LOST: 0.3,
    Fault.STORE_TAIL: 0.3,
    Fault.STORE_PAGE: 0.05,
    Fault.SNAPSHOT_PAGE: 0.03,
    Fault.SINK_LOG_PAGE: 0.05,
    Fault.SINK_BEFORE: 0.02,
    Fault.SINK_AFTER: 0.02,
    Fault.SINK_LATE: 0.03,
    Fault.CLOCK_JUMP: 0.002,
}


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    realtime: bool
    dataflow: Dataflow
    sink: SinkKind  # of the first one
    records: int
    epoch: int  # records per partition and epoch, about
    bundle: int  # rows per bundle, at most
    depth: int = FULL
    calls: bool = True
    calls_at_once: bool = False  # functions go on with other records while they wait for some of their calls
    effects: bool = True
    timers: bool = True
    event_time: bool = False
    lateness: bool = False  # the function tells late records from others
    per_epoch: bool = False  # it gathers records and processes them when the epoch ends
    skips_idle: bool = (
        False  # Spark runs no task of a stage that it knows to have no input; not where there are timers
    )
    archives: bool = False  # what instances did in past epochs is kept (`protocol.archive`)
    archive_size: int | None = None  # so many bytes of it, beside states; None: all, and no states
    impure: bool = False  # one operator uses entropy behind the services' back
    poison: int = 0  # so many records kill every replica that takes them
    poison_in_a_row: bool = False  # they come one behind the other from one partition
    inflight_bytes: int = 1 << 20
    window: int = 4
    snapshot_rate: float = 0.1
    fold_from: int = 4096  # pieces in a journal beyond which the older half is folded
    rates: tuple[tuple[Fault, float], ...] = ()
    faults: int = 10  # at most so many strike
    only: frozenset[int] | None = None  # of the faults that would strike, by number; for shrinking
    standbys: int = 0  # of every operator's instance, on a second host
    switches: int = 0  # so often, a new driver may be started with standbys where there were none, or without
    passive: bool = False  # they are
    executors: bool = False  # tasks run in several: none knows where another one left an instance
    real_values: bool = False  # keys, rows and state of users' types, through the real codecs
    state_cache: int = 4  # entries in the cache that they go through
    resumes: bool = True  # a real-time epoch that is run again goes on from snapshots inside it
    topics: int = (
        0  # a source's partitions are those of so many, under names; 0: they are known by their numbers
    )
    late_partitions: bool = False  # some are added while the query runs
    recreated: bool = False  # a topic is made anew under its name, with positions from 0 on
    spreads: bool = False  # tasks are on both hosts
    clocks: bool = False  # every host has one of its own
    first_generation: int = 0  # so many starts of the query were before
    first_attempt: int = 0  # Spark's number of the first task attempt of an application
    first_replacement: int = 0  # of every task attempt
    first_position: int = 0  # of every source partition, unless its last would be beyond the last there is
    other_sinks: SinkKind | None = None  # of the other ones; None: as the first
    late_trims: bool = False  # pages of a truncation reach the sinks late, twice, or not at all
    recovery: RecoveryKind = RecoveryKind.CAUSAL
    own_recoveries: tuple[tuple[NodeId, RecoveryKind], ...] = ()  # of operators that have another one
    round_interval: float = 0.01  # seconds

    @property
    def recoveries(self) -> Recoveries:
        """Of its operators and sinks."""
        return Recoveries.of(self.dataflow.topology, self.recovery, dict(self.own_recoveries))

    @property
    def sink_kinds(self) -> dict[NodeId, SinkKind]:
        """By sink."""
        first, *others = (sink.number for sink in self.dataflow.sinks)
        return {first: self.sink, **dict.fromkeys(others, self.other_sinks or self.sink)}

    @property
    def window_bytes(self) -> int:
        """Of bundles that a replica may be sent again and has not acknowledged: one alone, or as many as there are."""
        return 1 if self.window == 1 else 1 << 20

    @property
    def partitions(self) -> bool:
        """Hosts may be unable to reach each other, and so the second server has a lease."""
        return self.standbys > 0 and self.may(Fault.PARTITION)

    @property
    def has_two_hosts(self) -> bool:
        """Tasks are on both."""
        return self.loses_hosts or (self.spreads and self.standbys > 0)

    @property
    def loses_hosts(self) -> bool:
        """Tasks and standbys are on two, and the second may be lost."""
        return self.executors and self.standbys > 0 and self.may(Fault.HOST_LOST)

    def may(self, kind: Fault) -> bool:
        """Whether it may strike at all."""
        return any(known is kind for known, _ in self.rates)

    def with_rates(self, **changes: float) -> Plan:
        """The same run with some rates changed; for experiments."""
        rates = {**dict(self.rates), **{Fault[name]: rate for name, rate in changes.items()}}
        return replace(self, rates=tuple(sorted(rates.items(), key=lambda item: item[0].name)))


LOSES_EFFECTS = (Fault.STORE_LOST, Fault.STORE_PAGE, Fault.HOST_LOST, Fault.OLD_DISK)
"""What an effect was stable on may be gone: its outcome cannot be kept from changing."""

FORGETTING = (Fault.STORE_LOST, Fault.HOST_LOST, Fault.OLD_DISK)
"""The ones of `LOSES_EFFECTS` that leave no trace of an effect. A damaged store at least is known to be damaged."""

MAY_END_THE_QUERY = (Fault.SNAPSHOT_PAGE, Fault.SINK_LOG_PAGE, Fault.STORE_PAGE)
"""More than the protocol promises to survive: stopping with the reason is right, guessing never is."""


FILES_RATE = 0.04
"""Chance of `FILES_LOST`, for each instance that has ended, at the beginning of every later stage."""
HOST_RATE = 0.001
"""Chance of `HOST_LOST`, where there is a second one."""


def draw_plan(seed: int) -> Plan:
    """The run of a seed."""
    rng = Random(f"{seed}/plan")
    realtime = rng.random() < 0.5
    standbys = int(Random(f"{seed}/standbys").random() < 0.4)
    timers = rng.random() < 0.8
    intensity = rng.choice((0.3, 1.0, 1.0, 3.0))
    rates = {kind: rate * intensity for kind, rate in RATES.items() if rng.random() < 0.5}
    if rng.random() < 0.7:  # most runs must come out exact
        for kind in MAY_END_THE_QUERY:
            rates.pop(kind, None)
    if realtime:
        rates.pop(Fault.TASK_ZOMBIE, None)
    executors = Random(f"{seed}/executors").random() < 0.3
    if executors and not realtime:
        rates[Fault.FILES_LOST] = FILES_RATE * intensity
    plan = Plan(
        seed=seed,
        realtime=realtime,
        dataflow=draw_dataflow(rng),
        sink=rng.choice(tuple(SinkKind)),
        records=rng.randint(15, 60),
        epoch=rng.randint(3, 12),
        bundle=rng.choice((1, 3, 8, 40)),
        depth=rng.choice((FULL, FULL, FULL, 2, 1, 0)),
        calls=rng.random() < 0.8,
        effects=rng.random() < 0.7 and not any(kind in rates for kind in LOSES_EFFECTS),
        timers=timers,
        skips_idle=not timers and rng.random() < 0.5,
        event_time=rng.random() < 0.3,
        impure=rng.random() < 0.03,
        inflight_bytes=rng.choice((2_000, 1 << 20)),
        window=rng.choice((1, 2, 4, 16)),
        snapshot_rate=rng.choice((0.0, 0.05, 0.3)),
        rates=tuple(sorted(rates.items(), key=lambda item: item[0].name)),
        fold_from=rng.choice((4, 16, 4096)),
        poison=Random(f"{seed}/poisoned").choice((0, 0, 0, 0, 0, 0, 1, 3)),
        poison_in_a_row=Random(f"{seed}/poisoned in a row").random() < 0.5,
        faults=rng.choice((0, 2, 5, 10, 10, 20, 40)),
        standbys=standbys,
        passive=Random(f"{seed}/passive").random() < 0.5,
        executors=executors,
    )
    if executors and standbys and not plan.effects:
        plan = plan.with_rates(HOST_LOST=HOST_RATE * intensity)
    return plan


STORM_FAULTS = 150


def draw_storm(seed: int) -> Plan:
    """The run of a seed with more of everything that strikes; what may end the query is left out."""
    plan = draw_plan(seed)
    rates = {kind: rate * 4 for kind, rate in plan.rates if kind not in MAY_END_THE_QUERY}
    return replace(
        plan,
        records=2 * plan.records,
        rates=tuple(sorted(rates.items(), key=lambda item: item[0].name)),
        faults=STORM_FAULTS,
        impure=False,
    )
