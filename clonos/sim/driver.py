"""The driver: Spark's scheduling of epochs and tasks. What a start does, and whether there is another one, is decided
by `protocol.roles.query_coordinator` and `protocol.roles.restart_policy`.

Micro-batch mode: the end offsets of an epoch are written down first, stages run one after another over shuffle files,
a lost task is tried again. Real-time mode: all stages run at once over pipelined channels, any lost task ends the
query, and the end offsets are known, and committed, only when the epoch is over; the commit may appear while the next
epoch is running already.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from typing import TYPE_CHECKING

from clonos.errors import AlreadyRunning, ClonosError, Fenced, RecoveryTimeout
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, Origin, epoch_after, epoch_before
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.roles.restart_policy import (
    Failure,
    QueryFailed,
    RestartPolicy,
    cause_of,
    may_resume,
    named,
)
from clonos.protocol.topology import NodeKind
from clonos.sim.coordinator import Coordinator, ProgramRefused
from clonos.sim.kernel import Process, Steps
from clonos.sim.leaders import Leaders
from clonos.sim.leases import Leased
from clonos.sim.plan import Fault
from clonos.sim.records import Given
from clonos.sim.task import Task

if TYPE_CHECKING:
    from clonos.sim.world import Wires, World

TASK_FAILURES = 4
TIMEOUTS = 16
"""How many starts of the query in a row may end since a holder does not answer, before the user stops the query."""
PATIENCE = 1_000_000
"""How many starts in a row may fail for other reasons: a run has as many faults as it likes."""
Lost = tuple[Task, tuple[str, str] | None]


class SparkQueryFailed(Exception):
    """The Spark query has ended with an error."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error
        self.message = message


class Driver(Process):
    """One driver process: starts the query over the checkpoint, and again after every retryable failure."""

    def __init__(self, world: World, *, host: int = 0, clock_speed: float = 1.0) -> None:
        super().__init__(world.kernel, f"driver.{world.next_number('driver')}")
        self.world = world
        self.host = host
        self.clock_speed = clock_speed
        self.cut_until = 0
        world.drivers[self.name] = self
        self.leaders = Leaders(world, self)
        self._attempts = itertools.count(world.plan.first_attempt)  # anew in each application
        self._checkpoint = world.checkpoint
        self._coordinator = Coordinator(world, self)
        self.leased = Leased(world, self)
        self._inbox: deque[Lost] = deque()
        self._running: dict[Origin, Task] = {}
        self._began: dict[Origin, tuple[int, Epoch]] = {}  # by which start, and in which epoch
        self._files: dict[Origin, list[tuple[int, Given]]] = {}
        self._written_at: dict[Origin, int] = {}
        self._lost_files: set[Origin] = set()
        self._late_commit: int | None = None
        self._failures: list[Failure] = []  # of the last start's tasks

    def launch(self) -> None:
        self.begin(self._run())
        self._coordinator.launch()
        self.leased.launch()

    # ------------------------------------------------------------------ life

    @property
    def generation(self) -> Generation:
        return self._coordinator.generation

    def _run(self) -> Steps:
        timeouts = Counter[int]()
        policy = RestartPolicy(limit=PATIENCE, backoff=0)
        is_taken_over = False
        while True:
            try:
                if not is_taken_over:
                    yield from self._begin(self._coordinator.begin_driver())
                    is_taken_over = True
                yield from self._next_start()
                yield from self._epochs()
                self.world.finish("exact")
                return
            except (AlreadyRunning, Fenced) as refused:  # another driver leads, and goes on
                self.world.trace(self.name, f"ends: {refused}")
                yield from self._stop_tasks()
                return
            except ProgramRefused as refused:
                self.world.trace(self.name, f"is refused: {refused}")
                self.world.deployment.as_the_hint_says()
            except SparkQueryFailed as failed:
                self.world.trace(self.name, f"query failed: {failed}")
                yield from self._stop_tasks()
                if self.world.driver is not self:
                    return
                if RecoveryTimeout.__name__ in str(failed):
                    timeouts[self._checkpoint.committed] += 1
                if timeouts[self._checkpoint.committed] == TIMEOUTS:
                    self.world.finish(RecoveryTimeout.__name__, failed.message)
                    return
                failure = self._reason(failed)
                error, began = failure.error, self._coordinator.begins_at
                if self.world.deployment.is_told_what_to_do(error.message):
                    is_taken_over = False
                elif policy.failed(failure, self._checkpoint.committed, began) is None:
                    self.world.finish(type(error).__name__, error.message)
                    return
                yield self.world.choices.schedule.randint(500, 5_000)

    def _reason(self, failed: SparkQueryFailed) -> Failure:
        """What Spark says of its own accord may be the echo of a replica's failure."""
        error = named(failed.error, failed.message)
        if isinstance(error, QueryFailed):
            return cause_of(self._failures) or Failure(error)
        return Failure(error)

    def _next_start(self) -> Steps:
        resumes = self.world.plan.realtime and self.world.plan.resumes
        resumes = resumes and may_resume([type(failure.error).__name__ for failure in self._failures])
        self._failures = []
        self._late_commit = None
        yield from self._begin(self._coordinator.begin_start(resumes=resumes))

    def _begin(self, steps: Steps) -> Steps:
        try:
            yield from steps
        except (AlreadyRunning, Fenced):
            raise
        except ClonosError as error:
            raise SparkQueryFailed(type(error).__name__, error.message) from error

    def next_line(self) -> RecoveryLine:
        """Where instances would begin if the query failed now."""
        return self._coordinator.next_line()

    def overtaken(self, error: Fenced) -> None:
        """Another driver leads."""
        self.world.trace(self.name, f"ends: {error}")
        self.kill()

    @property
    def is_reachable(self) -> bool:
        """The checkpoint, from here."""
        return self.kernel.now >= self.cut_until

    def until_reachable(self) -> Steps:
        while not self.is_reachable:
            yield 1_000

    def _may_write(self) -> Steps:
        """For what Spark writes into its checkpoint: an overtaken driver does not get so far (docs: assumed)."""
        yield from self.until_reachable()
        self.leaders.check()

    def _stop_tasks(self) -> Steps:
        """Spark interrupts what still runs; what it cannot reach goes on for a while."""
        for task in self._running.values():
            self.world.interrupt_later(task, zombie=self.world.faults.strikes(Fault.TASK_ZOMBIE, task.name))
        self._running.clear()
        yield 100
        self._inbox.clear()

    def died(self) -> None:
        for task in self._running.values():
            self.world.interrupt_later(task, zombie=self.world.faults.strikes(Fault.TASK_ZOMBIE, task.name))
        self.world.driver_lost(self)

    def lose_executor(self, host: int) -> None:
        for task in self._running.values():
            if task.host == host and task.alive:
                task.lose_host()
                self.world.report(self, task, ("ExecutorLost", f"{task.name} is lost"))
        self._lost_files |= {origin for origin, at in self._written_at.items() if at == host}

    def give_up_executor(self, host: int) -> None:
        """It has not been heard of. What runs there goes on until it is told."""
        for task in self._running.values():
            if task.host == host and task.alive:
                self.world.task_lost(task)
        self._lost_files |= {origin for origin, at in self._written_at.items() if at == host}

    def report(self, task: Task, result: tuple[str, str] | None) -> None:
        if result is not None and task.generation == self.generation:
            self._failures.append(Failure(named(*result), task.origin))
        self._inbox.append((task, result))
        self.wake()

    def _next_report(self) -> Steps:
        """The next task that has ended; meanwhile the driver, or the query, may be lost."""
        waited = 0
        while not self._inbox:
            if self.world.faults.at_driver(self):
                raise SparkQueryFailed("Restarted", "the user restarted the query")
            yield 1_000
            waited += 1
        return self._inbox.popleft()

    # ---------------------------------------------------------------- epochs

    def _epochs(self) -> Steps:
        epoch = epoch_after(self._checkpoint.passed)
        begin = self._checkpoint.offsets.get(epoch_before(epoch)) or dict.fromkeys(self.world.partitions, 0)
        while True:
            if self.world.plan.realtime:
                end = yield from self._run_realtime(epoch, begin)
                yield from self._commit_late(epoch, end)
            else:
                end = yield from self._run_microbatch(epoch, begin)
                yield self.world.choices.schedule.randint(0, 500)
                yield from self._may_write()
                self._commit(epoch)
                self.world.faults.at_commit()
                yield from self._await_sinks(end)
            if self.world.is_drained(end):
                yield from self._await_commit(epoch)
                return
            epoch, begin = epoch_after(epoch), end

    def _commit(self, epoch: Epoch) -> None:
        self._checkpoint.commits.add(epoch)
        self.world.trace(self.name, f"commits epoch {epoch}")

    def _commit_late(self, epoch: Epoch, end: dict[Origin, int]) -> Steps:
        yield from self._await_commit(epoch_before(epoch))
        self._late_commit = epoch
        generation = self.generation

        def land() -> None:
            if not self.is_reachable:
                self.kernel.after(1_000, self.call, land)
            elif self.generation == generation and self.world.driver is self:
                self._checkpoint.offsets[epoch] = end
                self._commit(epoch)
                self._late_commit = None

        self.kernel.after(self.world.choices.schedule.randint(0, 20_000), self.call, land)

    def _await_sinks(self, end: dict[Origin, int]) -> Steps:
        """Spark runs no epoch without input; what sinks hold of the last one becomes visible all the same."""
        if self.world.recoveries.replace or self.world.plan.timers or not self.world.is_read(end):
            return
        while not self.world.is_drained(end):
            if self.world.faults.at_driver(self):
                raise SparkQueryFailed("Restarted", "the user restarted the query")
            yield 1_000

    def _await_commit(self, epoch: Epoch) -> Steps:
        while self._late_commit is not None and self._late_commit <= epoch:
            if self.world.faults.at_driver(self):
                raise SparkQueryFailed("Restarted", "the user restarted the query")
            yield 1_000

    def _draw_end(self, epoch: Epoch, begin: dict[Origin, int]) -> dict[Origin, int]:
        rng, most = self.world.choices.schedule, 2 * self.world.plan.epoch
        return {
            partition: min(at + rng.randint(0, most), len(self.world.partitions[partition]))
            if self.world.naming.is_there(partition, epoch, begin)
            else at
            for partition, at in begin.items()
        }

    def _number(self, begin: dict[Origin, int], end: dict[Origin, int]) -> Steps:
        """A task that reads a partition asks for the number of its channel."""
        asked = self.world.naming.names(
            [partition for partition, upto in end.items() if upto > begin[partition]]
        )
        yield from self._coordinator.channels.give(asked)

    def _channels_into(self, origin: Origin) -> list[int]:
        flow = self.world.plan.dataflow
        node = flow.topology.node(origin.node)
        upstream = set(node.upstream)
        return [
            each.channel
            for each in [*flow.source_partitions, *flow.instances(NodeKind.OPERATOR)]
            if each.node in upstream
        ]

    def runs(self, task: Task) -> bool:
        return self._running.get(task.origin) is task

    def _new_task(self, origin: Origin, epoch: Epoch, wires: Wires | None) -> Task:
        task = Task(
            self.world,
            origin,
            epoch=epoch,
            generation=self.generation,
            attempt=next(self._attempts),
            is_retry=(self.generation, epoch) == self._began.get(origin),
            channels=self._channels_into(origin),
            wires=wires,
            over=lambda task, result: self.world.report(self, task, result),
        )
        self._running[origin] = task
        self._began[origin] = self.generation, epoch
        return task

    # ------------------------------------------------------------ micro-batch

    def _run_microbatch(self, epoch: Epoch, begin: dict[Origin, int]) -> Steps:
        end = self._checkpoint.offsets.get(epoch)
        if end is None:
            yield from self._may_write()
            end = self._checkpoint.offsets[epoch] = self._draw_end(epoch, begin)
        yield from self._number(begin, end)
        self._files = {}
        self._written_at = {}
        self._lost_files = set()
        for partition, upto in end.items():
            self._files[partition] = self.world.source_records(
                partition, begin[partition], upto, self._coordinator.channels.numbers
            )
        for stage in self.world.plan.dataflow.stages():
            instances = [Origin.of(node.number, at) for node in stage for at in range(node.parallelism)]
            if self.world.plan.skips_idle and not any(self._input_of(each) for each in instances):
                continue
            yield from self._run_over_losses(epoch, instances)
        return end

    def _run_over_losses(self, epoch: Epoch, instances: list[Origin]) -> Steps:
        """What ran before a loss of shuffle files stays; then what wrote them runs again, and then the rest."""
        lost = [
            origin
            for origin in self._files
            if not self._is_source(origin)
            and self.world.faults.strikes(Fault.FILES_LOST, f"files of {origin}")
        ]
        before = [one for one in instances if lost and self.world.choices.schedule.random() < 0.5]
        yield from self._run_stage(epoch, before)
        for origin in lost:
            self.world.checks.victim(None)
            yield from self._run_stage(epoch, [origin])
        yield from self._run_stage(epoch, [one for one in instances if one not in before])

    def _is_source(self, origin: Origin) -> bool:
        return self.world.plan.dataflow.topology.node(origin.node).kind is NodeKind.SOURCE

    def _run_stage(self, epoch: Epoch, instances: list[Origin]) -> Steps:
        failures = Counter[Origin]()
        waiting = dict.fromkeys(instances)
        self._attempt_all(waiting, epoch)
        while waiting:
            ended: Lost = yield from self._next_report()
            task, result = ended
            if self._running.get(task.origin) is not task:
                continue
            del self._running[task.origin]
            if result is None:
                self._files[task.origin] = task.written
                self._written_at[task.origin] = task.host
                self._lost_files.discard(task.origin)
                del waiting[task.origin]
                self._attempt_all(waiting, epoch)
                continue
            failures[task.origin] += 1
            if failures[task.origin] >= TASK_FAILURES:
                raise SparkQueryFailed(*result)
            yield self.world.choices.schedule.randint(50, 2_000)
            self._attempt_all(waiting, epoch)

    def _attempt_all(self, waiting: dict[Origin, None], epoch: Epoch) -> None:
        """Attempt every instance that has not ended and can run. One whose input was lost waits until the input has
        been written again."""
        asking = [origin for origin in waiting if origin not in self._running]
        for origin in asking:
            asking += sorted(self._writers_to(origin) & self._lost_files - set(asking))
        waiting.update(dict.fromkeys(origin for origin in asking if origin not in waiting))
        for origin in asking:
            if origin not in self._running and not self._writers_to(origin) & waiting.keys():
                self._attempt(origin, epoch)

    def _writers_to(self, origin: Origin) -> set[Origin]:
        upstream = self.world.plan.dataflow.topology.node(origin.node).upstream
        return {
            each for each in self.world.plan.dataflow.instances(NodeKind.OPERATOR) if each.node in upstream
        }

    def _input_of(self, origin: Origin) -> list[tuple[int, list[Given]]]:
        """By channel, the records of the shuffle files that are for this instance."""
        found = []
        topology = self.world.plan.dataflow.topology
        for writer, file in self._files.items():
            own = topology.destination(writer.node, origin)
            records = [record for target, record in file if target == own]
            if records:
                found.append((writer.channel, records))
        return found

    def _attempt(self, origin: Origin, epoch: Epoch) -> None:
        task = self._new_task(origin, epoch, None)
        for channel, records in self._input_of(origin):
            for record in records:
                task.arrive(channel, record)
        for channel in self._channels_into(origin):
            task.end_of(channel)
        task.launch()

    # -------------------------------------------------------------- real time

    def _run_realtime(self, epoch: Epoch, begin: dict[Origin, int]) -> Steps:
        flow, rng = self.world.plan.dataflow, self.world.choices.schedule
        instances = flow.instances(NodeKind.OPERATOR, NodeKind.SINK)
        wires = self.world.wires()
        tasks = {origin: self._new_task(origin, epoch, wires) for origin in instances}
        wires.tasks = tasks
        for task in tasks.values():
            task.launch()
        end = self._draw_end(epoch, begin)
        yield from self._number(begin, end)
        duration = rng.randint(2_000, 30_000)
        for partition, upto in end.items():
            records = self.world.source_records(
                partition, begin[partition], upto, self._coordinator.channels.numbers
            )
            wires.stream(partition, records, duration)
        waiting = set(instances)
        while waiting:
            ended: Lost = yield from self._next_report()
            task, result = ended
            if self._running.get(task.origin) is not task:
                continue
            del self._running[task.origin]
            if result is not None:
                raise SparkQueryFailed(*result)
            waiting.discard(task.origin)
        return end
