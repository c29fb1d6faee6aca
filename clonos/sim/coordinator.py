"""The driver's side of a running query: a thin driver of `protocol.roles.query_coordinator`, as
`clonos.spark.coordinator` is one."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from clonos.errors import CheckpointMismatch, ClonosError, Fenced
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, epoch_after
from clonos.protocol.line.recovery_line import Point, RecoveryLine
from clonos.protocol.line.sink_trim import Page
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.holding import HolderReply, Index, told
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.awaited_rows import AwaitedRows
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.protocol.topology import NodeKind
from clonos.sim.channel_pages import Channels
from clonos.sim.commits import Commits
from clonos.sim.kernel import Process, Steps
from clonos.sim.partitions import Place
from clonos.sim.sink_at_driver import SinkAtDriver

if TYPE_CHECKING:
    from clonos.sim.driver import Driver
    from clonos.sim.sinks import SinkPlace
    from clonos.sim.world import World

POLL = 8_000
ROUNDS_POLL = 2_000
SHOWN_WITHIN = 30_000
_NEXT = Generation(1 << 31)
"""For a line that is only looked at."""


class ProgramRefused(Exception):
    """The checkpoint does not take this program."""


class Coordinator(QueryCoordinator):
    """A thread of the driver looks for commits."""

    def __init__(self, world: World, driver: Driver) -> None:
        topology = world.plan.dataflow.topology
        super().__init__(topology, is_realtime=world.plan.realtime, recoveries=world.recoveries)
        self._rounds: Progress | None = None
        self._awaited = AwaitedRows(deadline=SHOWN_WITHIN)
        self._is_starting = False
        self._showing: Process | None = None
        self.channels = Channels(world, driver)
        self._records = CommitRecords(Commits(world), topology)
        self._world = world
        self._driver = driver
        self._checkpoint = world.checkpoint

    @property
    def records(self) -> CommitRecords:
        return self._records

    def launch(self) -> None:
        self._world.kernel.after(POLL, self._driver.call, self._watch)
        if not self._recoveries.all_repeat:
            self._world.kernel.after(POLL, self._driver.call, self._exchange_rounds)

    def _exchange_rounds(self) -> None:
        """Now and then each server is told how far the rounds are, and tells what is stored."""
        if self._rounds is not None:
            try:
                self._tell(self._rounds.look(self._world.kernel.now / 1e6, self.forgotten))
            except ClonosError as error:
                self._world.trace(self._driver.name, f"a round is late: {error}")
        self._world.kernel.after(ROUNDS_POLL, self._driver.call, self._exchange_rounds)

    def _tell(self, said: Rounds) -> None:
        generation = self.generation
        for delay in self._world.faults.deliveries("rounds"):
            self._world.kernel.after(
                delay, self._world.tell_rounds, generation, said, partial(self._hear_stored, generation)
            )

    def _hear_stored(self, generation: Generation, stored: Mapping[Origin, StoredRound]) -> None:
        delay = self._world.choices.schedule.randint(10, 500)
        self._world.kernel.after(delay, self._driver.call, self._take_stored, generation, stored)

    def _take_stored(self, generation: Generation, stored: Mapping[Origin, StoredRound]) -> None:
        if generation == self.generation and self._rounds is not None:
            self._rounds.told(stored)

    def _watch(self) -> None:
        if self._driver.is_reachable:
            try:
                self.look_for_commits()
            except ClonosError as error:
                self._world.trace(self._driver.name, f"logs were not truncated: {error}")
            self._look_at_sinks()
        self._world.kernel.after(POLL, self._driver.call, self._watch)

    def _look_at_sinks(self) -> None:
        now, awaited = self._world.kernel.now, self._awaited
        if self._sinks_may_idle:
            awaited.commit(self.forgotten, now)
        if awaited.are_due and not self._is_starting and not self._is_showing:
            self._showing = Process(self._world.kernel, f"shows at {self._driver.name}")
            self._driver.mourners.append(self._showing.kill)
            takes_over = awaited.takes_over(now)
            self._showing.begin(self._show(self._showing, awaited.committed, takes_over=takes_over))

    @property
    def _is_showing(self) -> bool:
        return self._showing is not None and self._showing.alive

    def begin_start(self, *, resumes: bool) -> Steps:
        """Sinks are shown between starts, as under production's lock: both count the fences that were tried."""
        self._is_starting = True
        try:
            while self._is_showing:
                yield 200
            yield from super().begin_start(resumes=resumes)
        finally:
            self._is_starting = False

    def _show(self, process: Process, committed: Epoch, *, takes_over: bool) -> Steps:
        try:
            if (yield from self.show_committed(committed, takes_over=takes_over)):
                self._awaited.visible = committed
        except ClonosError as error:
            self._world.trace(self._driver.name, f"sinks do not show what they hold: {error}")
        process.kill()

    def is_served(self, origin: Origin) -> bool:
        return any(
            replica.origin == origin
            for server in self._world.servers
            if server.alive
            for replica in server.replicas
        )

    def show_held(self, request: AttachRequest, committed: Epoch) -> Steps:
        shows = SinkAtDriver(self._world, self._driver, request, committed)
        shows.launch()
        while not shows.is_over:
            yield 200
        if shows.error is not None:
            raise shows.error

    # ------------------------------------------------------------------ starts

    def campaign(self, *, above: Generation) -> Steps:
        return self._driver.leaders.campaign(above=above)

    def check_leads(self) -> None:
        self._driver.leaders.check()

    def begin_channels(self, generation: Generation, heard_of: Generation) -> Steps:
        return self.channels.begin(generation, heard_of=heard_of)

    def program_is_another(self) -> bool:
        return self._world.deployment.is_another

    def take_over_program(self, generation: Generation) -> None:
        try:
            self._world.deployment.take_over(epoch_after(self.passed()))
        except CheckpointMismatch as refused:
            raise ProgramRefused(str(refused)) from refused

    def program_changes_at(self, epoch: Epoch) -> bool:
        return self._world.deployment.history.changes_at(epoch)

    def programs(self) -> Mapping[Epoch, str]:
        return self._world.deployment.history.digests()

    def fence_servers(self, generation: Generation) -> Steps:
        self._world.trace(self._driver.name, f"generation {generation}, passed is {self.passed()}")
        for at in range(self._world.servers_wanted):
            reached: list[bool] = []
            asked: Any = None
            while not reached and self._driver.leased.counts(at):
                server = self._world.servers[at]
                if server is not asked and server.alive and self._world.ways.answers(0, at):
                    asked = server
                    server.call(server.set_generation, generation, functools.partial(reached.append, True))
                yield 200
        self._world.apply_store_losses()
        while not self._world.ways.answers(Place.DRIVER_HOST, Place.STORAGE):
            yield 1_000

    def begin_hosts(self, generation: Generation) -> Steps:
        yield from self._driver.leased.begins()
        self._world.begins_start(generation, self._driver)

    def passed(self) -> Epoch:
        return self._checkpoint.passed

    def snapshots_inside(self, epoch: Epoch) -> Mapping[Origin, Sequence[Point]]:
        return {
            origin: self._checkpoint.snapshots(origin).inside(epoch)
            for origin in self._world.plan.dataflow.instances(NodeKind.OPERATOR)
        }

    def cursors(self) -> Mapping[Origin, Mapping[int, int]]:
        return {origin: place.cursors for origin, place in self._world.sinks.items()}

    def sink_ends(self, epoch: Epoch) -> Mapping[Origin, SinkEnd]:
        return self._checkpoint.sink_ends(epoch)

    def all_snapshots_inside(self, epoch: Epoch) -> Mapping[Origin, Sequence[Point]]:
        return {
            origin: self._checkpoint.any_snapshots(origin).inside_of_all_attempts(epoch)
            for origin in self._topology.instances(NodeKind.OPERATOR, NodeKind.SINK)
            if not self._recoveries.repeats(origin.node)
        }

    def keep_line(self, line: RecoveryLine) -> None:
        self._rounds = self.new_progress(interval=self._world.plan.round_interval)
        self._checkpoint.lines[line.generation] = line
        self._world.checks.truncation.query_begins(line.generation, line.epoch)
        self._world.checks.line_drawn(line)
        self._world.copies_checkpoint()

    def next_line(self) -> RecoveryLine:
        return self._draw_line(_NEXT, resumes=True)[0]

    # ----------------------------------------------------------------- commits

    def committed(self) -> Epoch:
        return self._checkpoint.committed

    def look_for_commits(self) -> None:
        if self.generation and self.committed() > self.forgotten:
            self._world.faults.at_unrecorded_commit()
        super().look_for_commits()

    def tell_commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        self._world.trace(self._driver.name, f"truncates before the end of epoch {epoch}")
        self._world.checks.event_time.committed(epoch)
        for delay in self._world.faults.deliveries(f"commit of epoch {epoch}"):
            self._world.kernel.after(delay, self._world.tell_commit, epoch, truncation_points)

    def forget_left_behind(self) -> None:
        self._world.forget_left_behind()

    def trim_sinks(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        fence = Fence.of(self.generation)
        for place in self._world.sinks.values():
            page = place.page(lambda raw: still_needed(raw, truncation_points))
            if not self._world.plan.late_trims:
                self._remove(place, fence, page)
                continue
            for delay in self._world.faults.deliveries(f"page of sink {place.origin}"):
                self._world.kernel.after(delay, self._remove_late, place, fence, page)
        self._world.copies_checkpoint()

    def _remove(self, place: SinkPlace, fence: Fence, page: Page) -> None:
        with self._world.checks.truncates_sink(place):
            place.remove(fence, page)

    def _remove_late(self, place: SinkPlace, fence: Fence, page: Page) -> None:
        """It was on its way, and may come after its driver's end."""
        try:
            self._remove(place, fence, page)
        except Fenced as error:
            self._world.trace(f"sink {place.origin}", f"drops nothing: {error}")


def look_up_sinks(world: World, origin: Origin) -> HolderReply:
    """What the sinks keep of an instance's log."""
    world.faults.at_sink_log()

    def read(place: SinkPlace) -> Index:
        index = Index()
        index.take_deltas(kept.raw for kept in place.log if not kept.damaged)
        if any(kept.damaged for kept in place.log):
            index.damage(f"the log of sink {place.origin}")
        return index

    return told(
        "the sinks' logs", origin, LOG_BEGIN, [partial(read, place) for place in world.sinks.values()]
    )
