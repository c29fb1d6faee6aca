"""One run: everything there is, and who knows whom."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from clonos.errors import StorageUnavailable
from clonos.protocol.counters import LAST_LONG
from clonos.protocol.destination import destination
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, NodeId, Origin
from clonos.protocol.recovery.causal.holding import HolderReply
from clonos.protocol.recovery.choice import PolicyChoice
from clonos.protocol.recovery.policy import InstancePolicy
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.instance_moves import may_have_moved
from clonos.protocol.source_channels import ChannelNumbers
from clonos.protocol.topology import Node, NodeKind
from clonos.sim import values as real
from clonos.sim.checkpoint import Checkpoint, Snapshots
from clonos.sim.checks import Checks
from clonos.sim.checks.violation import Violation
from clonos.sim.choices import Choices
from clonos.sim.clocks import HostClock
from clonos.sim.commits import Commits
from clonos.sim.coordinator import look_up_sinks
from clonos.sim.disk import Disk, LogStore, lookup
from clonos.sim.driver import Driver
from clonos.sim.event_time import with_marks
from clonos.sim.fake_services import Refused
from clonos.sim.faults import Faults
from clonos.sim.kernel import Kernel
from clonos.sim.leases import Hosting
from clonos.sim.naming import Naming
from clonos.sim.operator import routing_key
from clonos.sim.partitions import Partitions, Place
from clonos.sim.plan import Fault, Plan, SinkKind
from clonos.sim.poison import Poison
from clonos.sim.programs import Deployment
from clonos.sim.records import Given, Record, Tag
from clonos.sim.replica import Replica
from clonos.sim.server import ReplicaServer
from clonos.sim.server_watch import ServerWatch
from clonos.sim.sinks import KINDS, SinkCommits, SinkPlace, SinkStore
from clonos.sim.task import Task
from clonos.sim.trace import Trace


@dataclass(eq=False)
class Service:
    """A determinant service."""

    world: World
    name: str
    host: int
    read: Callable[[Origin], HolderReply]
    silent_until: int = 0
    busy_until: int = 0

    def asked(self) -> None:
        """A replica begins to ask the service; this may be the moment at which the service falls silent."""
        silence = self.world.faults.at_service(self.name)
        if silence:
            self.silent_until = self.world.kernel.now + silence
        busy = self.world.faults.at_busy_service(self.name)
        if busy:
            self.busy_until = self.world.kernel.now + busy

    @property
    def counts(self) -> bool:
        """Whether the driver says that it has to be asked."""
        return self.host < self.world.servers_wanted and self.world.counts(self.host)

    def refuses(self, host: int) -> str | None:
        """Why it gives no answer now to a replica on this host."""
        now = self.world.kernel.now
        if not self.world.ways.answers(host, self.host):
            return "it cannot be reached"
        if now < self.silent_until:
            return "it is silent"
        return "it is busy" if now < self.busy_until else None

    def lookup(self, origin: Origin) -> HolderReply:
        """A whole reply, or StorageUnavailable."""
        reply = self.read(origin)
        self.world.faults.at_reply(self.name)
        return reply


class World:
    """See the module."""

    def __init__(self, plan: Plan, *, tracing: bool = False) -> None:
        self.plan = plan
        self.recoveries = plan.recoveries
        self.impure = _impure(plan)
        self.choices = Choices(plan.seed)
        self.kernel = Kernel()
        self.ways = Partitions(self.kernel)
        self.trace = Trace(self.kernel, keeping=tracing)
        self.checks = Checks(self)
        self.faults = Faults(self)
        names = ["the replica server", "the second server"][: 1 + plan.standbys]
        self.disks = [Disk(name, power_may_fail=plan.may(Fault.POWER_LOSS)) for name in names]
        self.checkpoint = Checkpoint()
        self.checkpoint_copy: Checkpoint | None = None
        self._copying = self.choices.stream("copies")
        self.clock_offset = 0
        clocks = self.choices.stream("clocks") if plan.clocks else None
        self.clocks = [HostClock(self.kernel, clocks) for _ in self.disks]
        self.stores_to_lose: list[LogStore] = []
        self.stores_to_cut: list[LogStore] = []
        self.outcome: str | None = None
        self.reason = ""
        self._numbers: Counter[str] = Counter()
        self.measured = count(1)
        kinds = plan.sink_kinds
        self.sinks: dict[Origin, SinkPlace] = {
            origin: KINDS[kinds[origin.node]](self, origin)
            for origin in plan.dataflow.instances(NodeKind.SINK)
        }
        commits = {kind: SinkCommits() for kind in SinkKind}  # sinks of one kind are in one place
        self.sink_commits = {node: commits[kind] for node, kind in kinds.items()}
        self.sink_stores = {node: SinkStore(self, node) for node in kinds}
        self.partitions: dict[Origin, list[int]] = {
            partition: [] for partition in plan.dataflow.source_partitions
        }
        self.naming = Naming(self)
        self._deal_records()
        self.poison = Poison(self.choices.stream("poison"), self.partitions, plan)
        self.servers: list[ReplicaServer] = []
        self._tasks: list[Task] = []
        self._executors = self.choices.stream("executors")
        self._hosts = self.choices.stream("hosts")
        self._backups = self.choices.stream("backups")
        self._switching = self.choices.stream("switches")
        self._switches = plan.switches
        numbers = [NodeId(node.number) for node in plan.dataflow.operators]
        self._operators = [number for number in numbers if self.recoveries.repeats(number)]
        self._with_standbys = set(self._operators) if plan.standbys else set()
        self.left_behind = False  # the logs of the second server, which is not started any more
        self.may_have_moved = plan.standbys > 0  # to another server, also an instance that has no standby now
        self.homes: dict[Origin, int] = {}  # what executors remember of where instances were
        self.services = [
            Service(self, "the driver", Place.DRIVER_HOST, lambda origin: look_up_sinks(self, origin)),
            *(
                Service(self, disk.holder, at, partial(self._look_up, at))
                for at, disk in enumerate(self.disks)
            ),
        ]
        self._unlisted_until = 0
        self.driver: Driver | None = None  # who leads, or leads first
        self.drivers: dict[str, Driver] = {}
        self.goes_without_a_host = False  # whose logs no longer count
        self.drivers_meet = plan.may(Fault.SECOND_DRIVER)
        self.meetings = self.choices.stream("meetings")
        self.starts: dict[int, str] = {}  # who made each start of the query
        self.told: dict[int, str] = {}  # by start of the query, whose function replicas are told to run
        self.deployment = Deployment(self)

    @property
    def unlisted(self) -> bool:
        """Whether the list of the holders cannot be read now."""
        return self.kernel.now < self._unlisted_until

    @property
    def holders(self) -> list[Service]:
        """The determinant services that a replica has to ask. Raises StorageUnavailable."""
        if self.unlisted:
            raise StorageUnavailable("the list of the holders cannot be read")
        return [service for service in self.services if service.counts]

    def begins_to_ask(self) -> None:
        """A replica is about to read the list of the holders."""
        blind = self.faults.at_list_of_holders()
        if blind:
            self._unlisted_until = self.kernel.now + blind

    def _look_up(self, at: int, origin: Origin) -> HolderReply:
        """The first server answers for one that is left behind, too."""
        disks = self.disks if self.left_behind else [self.disks[at]]
        for disk in disks:
            self.faults.at_reading(disk)
        return lookup(disks, origin, self.kernel.now)

    def _deal_records(self) -> None:
        rng = self.choices.stream("records")
        partitions = list(self.partitions)
        for record in range(self.plan.records):
            self.partitions[rng.choice(partitions)].append(record)
        self._source: dict[Origin, list[list[tuple[int, Record]]]] = {}
        for partition, records in self.partitions.items():
            readers = self.plan.dataflow.topology.downstream(partition.node)
            last: dict[int, int] = {}
            dealt = self._source[partition] = []
            first = min(self.plan.first_position, LAST_LONG - len(records) + 1)
            for position, record in enumerate(records, first):
                sent = []
                for reader in readers:
                    key, instance = self._routed(reader, record)
                    to = self.plan.dataflow.topology.destination(
                        partition.node, Origin.of(reader.number, instance)
                    )
                    assert to is not None
                    tag = Tag(partition.channel, position, last.get(to, -1), {}, {})
                    last[to] = position
                    sent.append((to, Record(position, (key, record, (), tag))))
                dealt.append(sent)

    def _routed(self, target: Node, record: int) -> tuple[Any, int]:
        """The key under which a reader sees a record, and which instance of it does."""
        if not self.plan.real_values:
            key = routing_key(target.number, record)
            return key, destination((key,), target.parallelism)
        kind = real.key_kind(self.plan.seed, target.number)
        key = real.key_value(kind, target.number, record)
        return key, real.router(kind, target.parallelism)([(key,)])[0]

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        self.servers = [ReplicaServer(self, disk) for disk in self.disks]
        for at in range(len(self.servers)):
            ServerWatch(self, at)
        self._switch_standbys()
        if self.plan.partitions:
            self.hosting = Hosting(self)
        if self.plan.may(Fault.OLD_DISK):
            self.back_up_disks()
        self.start_driver()

    def start_servers(self) -> None:
        """Start the server of the driver's host, and that of the second host, unless that one is leased."""
        for at in range(self.servers_wanted if not self.plan.partitions else 1):
            self.start_server(at)

    @property
    def servers_wanted(self) -> int:
        """How many servers the driver starts, or asks for."""
        return 2 if self._with_standbys else 1

    def standbys_of(self, origin: Origin) -> int:
        return int(origin.node in self._with_standbys)

    def _switch_standbys(self) -> None:
        """The user who starts the driver may have switched standbys on or off, for some operators or for all."""
        rng = self._switching
        if self._switches and rng.random() < 0.5:
            self._switches -= 1
            share = rng.choice((0.0, 0.5, 1.0))
            self._with_standbys = {node for node in self._operators if rng.random() < share}
            self.homes.clear()  # executors know what servers there are
            self.trace("the user", f"switches standbys on for {sorted(self._with_standbys)} alone")
        self.left_behind = self.servers_wanted == 1 and any(disk.stores for disk in self.disks[1:])
        self.may_have_moved = may_have_moved(
            other_servers=self.servers_wanted > 1, left_behind=self.left_behind
        )
        for server in self.servers[self.servers_wanted :]:
            server.kill()

    def forget_left_behind(self) -> None:
        if self.left_behind:
            self.trace("the driver", "removes what the second server has left behind")
            self.left_behind = False
            for disk in self.disks[1:]:
                disk.stores.clear()

    def start_server(self, at: int) -> ReplicaServer:
        """In the place of one that may be alive."""
        self.servers[at].kill()
        self.servers[at] = ReplicaServer(self, self.disks[at])
        ServerWatch(self, at)
        return self.servers[at]

    def start_driver(self) -> None:
        if not self.drivers_meet:
            self.driver = Driver(self)
            self.driver.launch()
            return
        driver = self._somewhere()
        self.driver = self.driver or driver
        driver.launch()

    def _somewhere(self) -> Driver:
        """A driver on one of two hosts, with a clock of its own."""
        return Driver(
            self, host=self.meetings.randrange(2), clock_speed=self.meetings.choice((0.5, 1.0, 2.0))
        )

    def begins_start(self, generation: Generation, driver: Driver) -> None:
        if generation in self.starts:
            raise Violation(
                "leadership", f"start {generation} is {self.starts[generation]}'s and {driver.name}'s"
            )
        self.starts[generation] = self.told[generation] = driver.name

    def policy_choice(self, origin: Origin) -> PolicyChoice:
        return PolicyChoice.of(self.plan.dataflow.topology, self.recoveries, NodeId(origin.node))

    def instance_policy(self, origin: Origin) -> InstancePolicy:
        """Of an instance, in a new process."""
        return self.policy_choice(origin).policy(origin.instance)

    def check_told(self, generation: Generation) -> None:
        """A replica runs the function of the driver in whose start it is."""
        starter, told = self.starts[generation], self.told[generation]
        if told != starter:
            raise Violation(
                "leadership", f"start {generation} is {starter}'s, but {told}'s function is run in it"
            )

    def start_second_driver(self) -> None:
        """The user starts it by mistake, or in the belief that the first one is dead."""
        self._somewhere().launch()

    def finish(self, outcome: str, reason: str = "") -> None:
        self.outcome, self.reason = outcome, reason

    def lose_server(self, at: int) -> None:
        self.servers[at].kill()
        self.kernel.after(self.choices.schedule.randint(2_000, 30_000), self._server_back, at)

    def lose_host(self, at: int) -> None:
        """Another one takes its place soon, with an empty disk. What was there is elsewhere, too, so that it explains
        nothing to `checks.losses`."""
        assert self.driver is not None
        self.driver.lose_executor(at)
        self.lose_server(at)
        self.disks[at].lose()
        self.checks.fencing.forgotten(self.disks[at].holder)

    def back_up_disks(self) -> None:
        """Now and then."""
        self.disks[self._backups.randrange(len(self.disks))].back_up()
        self.kernel.after(self._backups.randint(5_000, 100_000), self.back_up_disks)

    def return_old(self, at: int) -> None:
        """A host loses power, and what comes back in its place has an old copy of the disk."""
        self.lose_power(at)
        with self.checks.losses.watched():
            self.disks[at].restore()
        self.checks.fencing.forgotten(self.disks[at].holder)

    def disks_restored(self) -> list[int]:
        """How often each host has come back with an old copy of its disk."""
        return [disk.times_restored for disk in self.disks]

    def lose_power(self, at: int) -> None:
        """It comes back soon, with its disk. The driver dies by itself, if this is its host, and brings the server."""
        assert self.driver is not None
        self.driver.lose_executor(at)
        for task in self._tasks:
            if task.host == at:
                task.lose_host()
        if at == 0:
            self.servers[at].kill()
        else:
            self.lose_server(at)
        with self.checks.losses.watched():
            self.disks[at].lose_power(self.choices.faults, self.faults.at_torn_store)

    def _server_back(self, at: int) -> None:
        """A leased one when its driver asks again."""
        leased = at == Place.SECOND_HOST and self.plan.partitions
        if not self.servers[at].alive and at < self.servers_wanted and not leased:
            self.start_server(at)

    def counts(self, at: int) -> bool:
        """Whether the driver takes it that the server is there."""
        return self.driver is None or self.driver.leased.counts(at)

    def driver_lost(self, driver: Driver) -> None:
        if self.outcome is not None or driver is not self.driver:
            return
        for at, server in enumerate(self.servers):
            if self.ways.passes(Place.DRIVER_HOST, at):
                server.kill()
        self.apply_store_losses()

        def again() -> None:
            self.faults.at_checkpoint()  # its tasks are at an end by now
            self.faults.at_sinks()
            self._switch_standbys()
            self.start_servers()
            self.start_driver()

        self.kernel.after(self.choices.schedule.randint(2_000, 50_000), again)

    def apply_store_losses(self) -> None:
        """Once no living server uses the stores any more: a server that could not be told may go on."""
        used = {
            id(store)
            for disk, server in zip(self.disks, self.servers)
            if server.alive and server.replicas
            for store in disk.stores.values()
        }
        with self.checks.losses.watched():
            for store in self.stores_to_lose:
                if id(store) not in used:
                    store.lose()
            for store in self.stores_to_cut:
                if id(store) not in used:
                    store.lose_tail(self.choices.faults)
        self.stores_to_lose.clear()
        self.stores_to_cut.clear()

    def has_recorded(self, origin: Origin) -> bool:
        """Whether it is known of an instance that it has ended an epoch which committed."""
        newest = Commits(self).newest if self.plan.may(Fault.SNAPSHOTS_GONE) else None
        return newest is not None and origin in newest.ends

    def ended_unrecorded(self) -> list[Snapshots]:
        """The snapshots of instances that no commit record names yet."""
        if not self.plan.may(Fault.SNAPSHOTS_GONE):
            return []
        return [
            self.checkpoint.snapshots(origin)
            for origin in self.plan.dataflow.instances(NodeKind.OPERATOR)
            if not self.has_recorded(origin)
        ]

    def copies_checkpoint(self) -> None:
        """The user does so now and then."""
        if self.plan.may(Fault.CHECKPOINT_OLDER) and self._copying.random() < 0.3:
            self.checkpoint_copy = self.checkpoint.copy()

    # ----------------------------------------------------------------- tasks

    def begins(self, task: Task) -> None:
        """For those that a host takes along when it loses power, also when Spark has given them up."""
        if self.plan.may(Fault.POWER_LOSS) or self.plan.may(Fault.OLD_DISK):
            self._tasks = [known for known in self._tasks if known.alive] + [task]

    def report(self, driver: Driver, task: Task, result: tuple[str, str] | None) -> None:
        delay = self.choices.schedule.randint(10, 500) + self.held(task.host, Place.DRIVER_HOST)
        self.kernel.after(delay, driver.call, driver.report, task, result)

    def held(self, source: int, target: int) -> int:
        """For how long a message does not get through."""
        return max(self.ways.opens(source, target) - self.kernel.now, 0)

    def task_lost(self, task: Task) -> None:
        """Spark takes the attempt for lost."""
        driver = next((one for one in self.drivers.values() if one.runs(task)), self.driver)
        assert driver is not None
        self.report(driver, task, ("ExecutorLost", f"{task.name} is lost"))
        if task.alive:
            self.interrupt_later(task, zombie=True)

    def executor_silent(self, host: int) -> None:
        """If it still is."""
        if self.driver is not None and not self.ways.passes(host, Place.DRIVER_HOST):
            self.driver.give_up_executor(host)

    def interrupt_later(self, task: Task, *, zombie: bool) -> None:
        delay = (
            self.choices.schedule.randint(1_000, 200_000) if zombie else self.choices.schedule.randint(0, 500)
        )
        self.kernel.after(delay, task.call, task.interrupt)

    def host(self) -> int:
        """Where the next task runs."""
        return self._hosts.randrange(len(self.disks)) if self.plan.has_two_hosts else 0

    def home(self, origin: Origin, host: int) -> int:
        """Where the next task of an instance begins: where the executor remembers it, or on the task's own host."""
        here = not self.plan.executors or self._executors.random() < 0.5
        return self.homes.get(origin, 0) if here else host

    def wires(self) -> Wires:
        return Wires(self)

    def source_records(
        self, partition: Origin, begin: int, end: int, numbers: ChannelNumbers
    ) -> list[tuple[int, Given]]:
        sent = [(to, self._entering(one)) for each in self._source[partition][begin:end] for to, one in each]
        return with_marks(self.plan, partition.node, self.naming.identified(partition, sent, numbers))

    def _entering(self, record: Record) -> Record:
        return replace(record, ingested=self.checks.ingestion.entered(record.row[1], self.kernel.now))

    def is_drained(self, end: dict[Origin, int]) -> bool:
        return self.is_read(end) and self.checks.everything_is_out()

    def is_read(self, end: dict[Origin, int]) -> bool:
        return all(end[partition] == len(records) for partition, records in self.partitions.items())

    def tell_commit(self, epoch: Epoch, truncation_points: dict[Origin, LogOffset]) -> None:
        for at, server in enumerate(self.servers):
            if server.alive and self.ways.passes(Place.DRIVER_HOST, at):
                server.call(server.commit, epoch, truncation_points)

    def tell_rounds(
        self, generation: Generation, rounds: Rounds, answer: Callable[[Mapping[Origin, StoredRound]], None]
    ) -> None:
        for at, server in enumerate(self.servers):
            if server.alive and self.ways.passes(Place.DRIVER_HOST, at):
                server.call(server.hear_rounds, generation, rounds, answer)

    # -------------------------------------------------------------- outside

    def sink(self, origin: Origin) -> SinkPlace:
        return self.sinks[origin]

    def clock(self, host: int) -> int:
        return self.clocks[host].day + self.clock_offset + self.choices.nature.randint(0, 30)

    def ask(self) -> int:
        """A service that never answers twice alike, and sometimes refuses."""
        answer = self.choices.nature.getrandbits(30)
        if answer % 3 == 0:
            raise Refused(f"try later {answer}")
        return answer

    def next_number(self, what: str) -> int:
        self._numbers[what] += 1
        return self._numbers[what]

    def next_token(self) -> str:
        """One that was never given before."""
        return f"membership {self.next_number('membership')}"

    def replicas(self) -> list[Replica]:
        return [replica for server in self.servers if server.alive for replica in server.replicas]

    def stores(self) -> Iterator[LogStore]:
        """The log stores of all hosts."""
        return (store for disk in self.disks for store in disk.stores.values())


class Wires:
    """The pipelined exchange of one real-time epoch: FIFO from each instance to each, with a delay of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._not_before: dict[tuple[int, Origin], int] = {}
        self.tasks: dict[Origin, Task] = {}

    def stream(self, partition: Origin, records: list[tuple[int, Given]], duration: int) -> None:
        """A source partition, read over the epoch."""
        rng = self._world.choices.schedule
        begins = self._world.naming.from_on(partition, duration)
        times = deque(sorted(rng.randint(begins, duration) for _ in records))
        for target, record in records:
            self._world.kernel.after(times.popleft(), self.send, partition, target, record)
        self._world.kernel.after(duration, self.end, partition)

    def send(self, writer: Origin, target: int, record: Given) -> None:
        receiver = self._world.plan.dataflow.topology.receiver(writer.node, target)
        assert receiver is not None
        task = self.tasks[receiver]
        self._plan(writer, task, task.arrive, writer.channel, record)

    def end(self, writer: Origin) -> None:
        if writer in self._world.sinks:
            return
        for reader in self._world.plan.dataflow.topology.downstream(writer.node):
            for instance in range(reader.parallelism):
                task = self.tasks[Origin.of(reader.number, instance)]
                self._plan(writer, task, task.end_of, writer.channel)

    def _plan(self, writer: Origin, task: Task, act: Callable[..., None], *arguments: Any) -> None:
        kernel = self._world.kernel
        edge = (writer.channel, task.origin)
        at = max(kernel.now + self._world.choices.schedule.randint(20, 1_500), self._not_before.get(edge, 0))
        sender = self.tasks.get(writer)
        at = max(at, self._world.ways.opens(sender.host if sender is not None else task.host, task.host))
        self._not_before[edge] = at
        kernel.after(at - kernel.now, task.call, act, *arguments)


def _impure(plan: Plan) -> Node:
    """Which operator uses entropy behind the services' back, if one does: where some may, one of those."""
    operators = plan.dataflow.operators
    may = [node for node in operators if not plan.recoveries.repeats(NodeId(node.number))]
    return (may or operators)[0]
