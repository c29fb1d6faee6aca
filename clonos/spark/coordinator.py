"""The driver's side of a running query: a thin driver of `clonos.protocol.roles.query_coordinator`.

Takes the leadership of the query before it touches anything of it, starts the replica server, speaks the determinant
service for what the sinks keep, and looks for Spark's commits now and then. What a start does in which order, and what
follows from a commit, is the role's.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from clonos.errors import ClonosError, Fenced, StorageUnavailable
from clonos.protocol.fence import NO_GENERATION, Fence, Generation
from clonos.protocol.ids import NO_EPOCH, Epoch, InstanceId, LogOffset, NodeId, Origin
from clonos.protocol.line.recovery_line import Point, RecoveryLine
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.holding import HolderReply, told
from clonos.protocol.recovery.on_gap import OnGap
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.protocol.roles.restart_policy import Failure, cause_of, may_resume, named
from clonos.protocol.roles.steps import Steps, carry_out
from clonos.protocol.topology import NodeKind
from clonos.protocol.versions.upgrade import another_query, is_another
from clonos.spark.back_edges import check_back_edges
from clonos.spark.channels import SourceChannels, numbers_without_pages
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.commits import Commits
from clonos.spark.compile import Compiled
from clonos.spark.conduit_address import Address
from clonos.spark.executors import ExecutorServices
from clonos.spark.former_data import check_former_data
from clonos.spark.held_rows import HeldRows, show_held
from clonos.spark.kafka_topics import check_topics
from clonos.spark.leadership import DriverLeadership
from clonos.spark.location import stores_of
from clonos.spark.query_snapshots import SnapshotsInside, sink_ends, snapshots_inside
from clonos.spark.recovery_traces import RecoveryTraces, Target
from clonos.spark.remote_servers import executors_servers, metrics_place, reached_at, remote_servers
from clonos.spark.rounds import RoundKeeper
from clonos.spark.settings import Settings
from clonos.spark.sink_stores import SinkStores, index_of
from clonos.spark.ticks import fitted
from clonos.spark.upgrade import data_directory, drop, take_over, undisturbed
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import read_keys
from clonos.storage.event_place import check_place, keep_place
from clonos.storage.host_memberships import HostMemberships
from clonos.storage.log_directory import claim_log_directory, note_start
from clonos.storage.recovery_line_file import newest_line, write_line
from clonos.wire.determinant_service import DeterminantServer
from clonos.wire.server_status import FailureReport, QueryStatus, ServersStatus
from clonos_standby.cluster.servers import Placement, ReplicaServers
from clonos_standby.cluster.spec import QuerySpec, ReplicaSettings
from clonos_standby.server.log import LogFormat, about, driver_writes_json, traced
from clonos_standby.server.seldom import Seldom

LOG = logging.getLogger("clonos")

COMMIT_POLL_SECONDS = 0.25
_FORGETS_EVERY = 20.0
"""Seconds. Where rows are seen at once, the safe line only says what may go: it is drawn four times in this."""
RECENT_SECONDS = 15.0


class Coordinator(QueryCoordinator):
    """One query in one driver."""

    _entry: str | None = (
        None  # what replica processes run; tests of what happens without some part replace it
    )

    def __init__(
        self,
        compiled: Compiled,
        location: str,
        settings: Settings,
        *,
        driver_pids: tuple[int, ...],
        faults: str,
        driver_host: str = "",
        spread: bool = False,
        realtime: bool = False,
        executors: ExecutorServices | None = None,
        same_source: bool = False,
        numbering: Any = None,
    ) -> None:
        """`driver_host` is Spark's name of this host; `spread` whether tasks run on others, too; `executors` are asked
        for the services of replica servers, where the settings say so; `same_source`: a source that is at another place
        has the same records; `numbering` is the Java class at which tasks ask for numbers of channels."""
        topology = compiled.topology(realtime=realtime)
        super().__init__(topology, is_realtime=realtime, recoveries=compiled.recoveries)
        self._numbering = numbering
        self._compiled = compiled
        self._settings = settings
        self._checkpoint = Checkpoint(location)
        self._same_source = same_source
        self._token = secrets.token_hex(16)
        self._driver_pids = driver_pids
        self._faults = faults
        self._stopping = threading.Event()
        # Held while a commit is recorded, and what it allows is forgotten
        self._forgetting = threading.Lock()
        self._seldom = Seldom()
        self._leadership = DriverLeadership(location, settings.data_dir)
        self.query = ""  # known when it has started
        self.on_shown: Callable[[], None] = lambda: None  # what has committed is visible, or comes into view
        self.data = ""
        self._is_in_place = False  # the checkpoint says where this driver keeps logs
        compiled.bind(self._checkpoint.location)
        self._inside = SnapshotsInside(self._checkpoint.location, self._topology, self._recoveries.repeating)
        self._driver_host = driver_host
        self._spread = spread
        self._remote = remote_servers(settings, spread=spread)
        self._executors = executors if compiled.has_standbys() else None
        self._listen = reached_at(settings, driver_host if spread else "")
        self._metrics = metrics_place(settings)
        self._traced = Target.of(settings.traces_endpoint)
        self._traces: RecoveryTraces | None = None
        self._rounds: RoundKeeper | None = None
        self.held = HeldRows(
            self._show_between_starts,
            shown=lambda: self.on_shown(),
            failed=self._cannot_show,
            deadline=settings.function_deadline,
        )
        self._starting = threading.RLock()  # while a start begins, or what sinks hold is shown here
        self._end: Callable[[ClonosError], None] = lambda error: None
        self._seen_cursors: Mapping[Origin, Mapping[int, int]] = {}
        self._sinks_due = 0.0  # by the steady clock

    # ------------------------------------------------------------------ life

    @property
    def location(self) -> str:
        """Of the checkpoint."""
        return self._checkpoint.location

    @property
    def is_realtime(self) -> bool:
        return self._is_realtime

    def start(self, end: Callable[[ClonosError], None] = lambda error: None) -> None:
        """Servers up; the first generation may begin. Raises AlreadyRunning where another driver leads the query, of
        which nothing has been touched then. `end` hears of what ends the query: that another driver has taken
        over, or that rows cannot be shown."""
        if self._settings.log_format is LogFormat.JSON:
            driver_writes_json()
        self._checkpoint.check_split()
        self._leadership.on_lost = self._end = end
        self._claimed = self._leadership.take()
        try:
            self._begin()
        except BaseException:
            self._leadership.release()
            raise

    def _begin(self) -> None:
        # Another query is told so, before it matters what the checkpoint and this query's sink know of each other.
        if self._checkpoint.is_causal() and (
            why := another_query(self._checkpoint.history(), self._topology, same_source=self._same_source)
        ):
            raise why
        appends = any(kind.appends for kind in self._recoveries.by_node.values())
        events = check_place(self._checkpoint.location, self._settings.events_url) if appends else ""
        self.query = self._checkpoint.open(self._topology, self._recoveries)
        if appends:
            keep_place(self._checkpoint.location, events)
        if self._checkpoint.committed() > NO_EPOCH:
            check_back_edges(self._compiled.sink_plans, self.query)
        self._sinks = SinkStores(self._compiled.sinks, self.query)
        self._commits = Commits(
            self._checkpoint,
            self._topology,
            self._sinks,
            self._fitted,
            sinks_hold=not self._recoveries.replace,
        )
        self._records = CommitRecords(self._commits, self._topology)
        self.data = data_directory(self._checkpoint.location, self.query, self._settings)
        before = self._checkpoint.history().bindings[-1].program
        if self._settings.on_gap is not OnGap.AT_LEAST_ONCE:
            check_former_data(self._checkpoint, before, self.query, self.data)
        Path(self.data).mkdir(parents=True, exist_ok=True)
        if self.data != self._checkpoint.inside:  # what is inside goes with it
            claim_log_directory(Path(self.data), self._checkpoint.location, self.query)
        pages = self._checkpoint.channel_pages(self._leadership.check)
        self._channels = SourceChannels(self._numbering, pages, self.query, self._compiled.only_named())
        self._known_channels = numbers_without_pages(self._checkpoint, before, self._topology)
        carry_out(self.begin_driver())
        if self._executors is not None:
            self._executors.await_answers()
        if self._traced is not None:
            self._traces = RecoveryTraces(self._traced, self.query, self._names, self._status)
        self._service = DeterminantServer(
            self._lookup, self._token, query=self.query, host=self._listen, tls=self._remote.tls
        )
        try:
            self._servers = self._start_servers()
        except BaseException:
            self._service.stop()
            if self._traces is not None:
                self._traces.stop()
            raise
        if self._traces is not None:
            self._traces.start()
        if not self._recovery.repeats:
            self._rounds = RoundKeeper(
                partial(
                    self.new_progress,
                    interval=self._settings.round_interval,
                    forgets_every=_FORGETS_EVERY,
                ),
                exchange=self._servers.exchange_rounds,
                committed=lambda: self.forgotten,
            )
        self._watcher = threading.Thread(target=self._watch, name="clonos-commits", daemon=True)
        self._watcher.start()

    def _start_servers(self) -> ReplicaServers:
        nodes = self._compiled.node_specs(self._history)
        self._leadership.check()
        self._publish_broadcasts()
        self._begin_archive()
        spec = self._spec = QuerySpec(
            query=self.query,
            token=self._token,
            checkpoint=self._checkpoint.location,
            data=self.data,
            driver_pids=self._driver_pids,
            settings=ReplicaSettings(
                snapshot_interval=self._settings.snapshot_interval,
                snapshot_work=self._settings.snapshot_work,
                recovery_deadline=self._settings.recovery_deadline,
                function_deadline=self._settings.function_deadline,
                state_cache=self._settings.state_cache,
                bundle_rows=self._settings.bundle_rows,
                bundle_bytes=self._settings.bundle_bytes,
                intercept=self._settings.intercept,
                archive_keep=self._settings.archive_keep,
                archive_bytes=self._archive_bytes(),
                archive_key_file=self._settings.archive_key_file,
                archive_lineage=self._settings.archive_lineage,
                round_interval=self._settings.round_interval,
            ),
            nodes=nodes,
            determinants=(self._service.address,),
            faults=self._faults,
            names=self._names,
            metrics=self._metrics,
            damage_accepted=self._settings.on_gap is OnGap.AT_LEAST_ONCE
            and self._checkpoint.given_up().generation > 0,
            output_number_floor=self._checkpoint.given_up().numbers,
            listen=self._listen,
            tls=self._remote.tls,
            log_format=self._settings.log_format,
            stores=stores_of(self._checkpoint.location),
        )
        return ReplicaServers(
            spec,
            self._placement(),
            entry=self._entry,
            silence=self._settings.heartbeat,
            may_ask=self._leadership.check,
        )

    def _publish_broadcasts(self) -> None:
        """Those of past epochs stay while these can be repeated, whether this start leaves anything or not."""
        is_archived = bool(self._settings.archive_keep) or Archive(self._checkpoint.location).is_begun
        self._compiled.broadcasts.publish(self._checkpoint.location, keeps_others=is_archived)

    def _begin_archive(self) -> None:
        if self._settings.archive_keep:
            keys = read_keys(self._settings.archive_key_file)
            Archive(self._checkpoint.location, keys=keys, query=self.query).begin_writing()

    def _archive_bytes(self) -> int | None:
        """For each instance of an operator alike."""
        whole = self._settings.archive_size
        instances = sum(
            node.parallelism for node in self._compiled.topology().nodes if node.kind is NodeKind.OPERATOR
        )
        return max(1, whole // max(1, instances)) if whole else None

    def _placement(self) -> Placement:
        """With the services that executors have at this moment."""
        if self._executors is not None:
            self._remote = executors_servers(self._remote, self._executors, self.data)
        return Placement(
            self._remote,
            self._compiled.instances_on_remote_servers(len(self._remote.services), spread=self._spread),
            standbys=self._compiled.has_standbys(),
            history=self._checkpoint.given_up().generation,
            host=self._driver_host,
            spread=self._spread,
            executors=self._executors is not None,
        )

    def give_up_history(self) -> None:
        """An instance or a sink depends on what no holder has, and the user prefers repeated output to none.

        Repeating an epoch in part is worth nothing: whatever comes after the gap was recorded against output that will
        come out differently. So all that was recorded since the last committed epoch is dropped, everywhere, and the
        output is numbered anew, so that nothing is taken for what has been shown before. The mark is written first:
        a driver that dies in the middle of this leaves no recording behind that a later one would take for whole.
        """
        self._servers.stop()
        generation = self.generation = carry_out(self._claim(self.records.last_generation))
        self._channels.begin(generation)
        carry_out(self.records.fence_sinks(generation))  # what is visible is what will have been
        finals = self.records.final_snapshots(self._checkpoint.committed())
        numbers = max(self._checkpoint.given_up().numbers, self._commits.highest_number(finals))
        self._checkpoint.give_up(generation, numbers)
        drop(self.data)
        self._sinks.truncate(self._fence, lambda raw: False)
        self._servers = self._start_servers()

    def next_generation(self) -> Address:
        """One more start of the Spark query may begin."""
        line = newest_line(self._checkpoint.location)
        resumes = self._is_realtime and may_resume(
            self._failed_with(),
            given_up=self._checkpoint.given_up().generation,
            last_begun=line.generation if line is not None else NO_GENERATION,
        )
        with self._starting:
            carry_out(self.begin_start(resumes=resumes))
        check_topics(self._checkpoint, self._compiled.kafka_sources(), same_source=self._same_source)
        self._publish_broadcasts()
        self._channels.open(self.generation)
        return Address(
            self._servers.addresses,
            self._token,
            self.generation,
            self._remote.tls,
            self._spread,
            self._channels.tables(self.generation),
        )

    # ----------------------------------------------------- for the role: a start

    @property
    def records(self) -> CommitRecords:
        return self._records

    def campaign(self, *, above: Generation) -> Steps:
        yield from ()
        return self._leadership.next_generation(above=above)

    def check_leads(self) -> None:
        self._leadership.check()

    def begin_channels(self, generation: Generation, heard_of: Generation) -> Steps:
        known, self._known_channels = self._known_channels, []
        self._channels.begin(generation, known, heard_of=heard_of)
        yield from ()

    def undisturbed(self) -> AbstractContextManager[None]:
        return undisturbed(self.data)

    def program_is_another(self) -> bool:
        return is_another(self._checkpoint.history(), self._topology)

    def take_over_program(self, generation: Generation) -> None:
        self._history = take_over(
            self._checkpoint,
            self._topology,
            self._sinks,
            self.data,
            forget_hosts=lambda: HostMemberships(self._checkpoint.location).keep(generation, {}),
            same_source=self._same_source,
        )

    def program_changes_at(self, epoch: Epoch) -> bool:
        return self._history.changes_at(epoch)

    def programs(self) -> Mapping[Epoch, str]:
        return self._history.digests()

    def depose(self, generation: Generation) -> Steps:
        """While nothing is forgotten."""
        with self._forgetting:
            yield from super().depose(generation)

    def sweep(self) -> None:
        self._checkpoint.sweep()

    def fit_offsets(self, generation: Generation) -> None:
        changed = self._checkpoint.fit_offsets(self._fitted)
        newest = self._records.newest
        if newest is not None and newest.epoch in changed:
            self._records.keep(replace(newest, generation=generation, offsets=changed[newest.epoch]))

    def fence_servers(self, generation: Generation) -> Steps:
        self._servers.set_generation(generation)
        yield from ()

    def begin_hosts(self, generation: Generation) -> Steps:
        if self._executors is not None:
            self._servers.settle(self._placement())
        self._servers.begins(generation)
        yield from ()

    def passed(self) -> Epoch:
        return self._checkpoint.passed()

    def snapshots_inside(self, epoch: Epoch) -> Mapping[Origin, Sequence[Point]]:
        return snapshots_inside(self._checkpoint.location, self._topology, epoch)

    def cursors(self) -> Mapping[Origin, Mapping[int, int]]:
        self._seen_cursors = self._sinks.cursors()
        return self._seen_cursors

    def seen_cursors(self) -> Mapping[Origin, Mapping[int, int]]:
        """A sink whose place is away holds up no other sink."""
        return self._seen_cursors

    def _look_at_sinks(self) -> None:
        """Now and then, where what they show says what may be forgotten."""
        now = time.monotonic()
        if now >= self._sinks_due and self._recovery.logs_messages and self._shows_at_once:
            self._sinks_due = now + _FORGETS_EVERY / 4
            self.cursors()

    def sink_ends(self, epoch: Epoch) -> Mapping[Origin, SinkEnd]:
        return sink_ends(self._checkpoint.location, self._topology, epoch)

    def is_served(self, origin: Origin) -> bool:
        return any(
            (each["node"], each["instance"]) == (origin.node, origin.instance)
            for each in self._servers.status()["replicas"]
        )

    def show_held(self, request: AttachRequest, committed: Epoch) -> Steps:
        show_held(self._spec, self.data, request, committed)
        yield from ()

    def await_shown(self, *, tries_on: bool) -> bool:
        """Until everything that has committed is visible; whether it is. Raises what keeps sinks from showing it, or
        where it `tries_on` only what will not pass."""
        if not self._sinks_may_idle:
            return True
        return self.held.await_shown(self._checkpoint.committed(), tries_on=tries_on)

    @property
    def rows_come_back_late(self) -> bool:
        """Whether rows of a loop are there for Spark only when their epoch has committed, and Spark may have looked."""
        return self._sinks_may_idle and bool(self._compiled.back_edges())

    def wait_no_longer_than(self, seconds: float) -> None:
        """For rows to be visible, from now on."""
        self.held.end_within(seconds)

    def all_snapshots_inside(self, epoch: Epoch) -> Mapping[Origin, Sequence[Point]]:
        return self._inside.all(epoch)

    def begins_behind(self, epoch: Epoch, error: ClonosError) -> None:
        LOG.warning("the epoch is run from its beginning: %s", error)

    def keep_line(self, line: RecoveryLine) -> None:
        if not self._is_in_place:  # from now on instances of this driver may log something there
            self._checkpoint.set_place(self.data)
            note_start(Path(self.data), line.generation)
            self._is_in_place = True
        write_line(self._checkpoint.location, line)
        if self._rounds is not None:
            self._rounds.begin(line.generation)

    def _fitted(self, offsets: bytes) -> bytes:
        sources = sum(node.kind is NodeKind.SOURCE for node in self._topology.nodes)
        return fitted(offsets, sources, ticking=self._compiled.has_ticks(realtime=self._is_realtime))

    @property
    def _fence(self) -> Fence:
        """The fence of this driver, in this start of the query."""
        return Fence.of(self.generation)

    def _failed_with(self) -> list[str]:
        """Names of the errors that instances of the last start have reported."""
        try:
            said = self._servers.status()["failures"]
        except ClonosError:
            return []
        return [failure["error"] for failure in said if failure["generation"] == self.generation]

    def stop(self) -> None:
        """Replicas, servers and threads are gone when this returns."""
        self._stopping.set()
        self._watcher.join()
        self.held.stop()
        if self._rounds is not None:
            self._rounds.stop()
        self._channels.stop()
        if self._traces is not None:
            self._traces.stop()
        self._servers.stop()
        self._service.stop()
        self._inside.close()
        self._leadership.release()

    def cause_of_failure(self) -> Failure | None:
        """What a replica or a conduit of this generation has just failed with (`restart_policy.cause_of`)."""
        try:
            said = self._servers.status()["failures"]
        except ClonosError:
            return None
        since = time.time() - RECENT_SECONDS
        return cause_of(
            Failure(named(failure["error"], failure["message"]), _origin_of(failure))
            for failure in said
            if failure["generation"] == self.generation and failure["at"] >= since
        )

    def named(self, error: ClonosError) -> ClonosError:
        """With the names of the channels that it speaks of."""
        return type(error)(self._channels.named(error.message), where=error.where, hint=error.hint)

    def spill_directory(self) -> str | None:
        """Where conduits put what exceeds their memory; None where they are on other hosts, each with its own."""
        if self._spread:
            return None
        path = os.path.join(self.data, "spill")
        os.makedirs(path, exist_ok=True)
        return path

    @property
    def _names(self) -> dict[int, str]:
        return {node.number: node.name for node in self._topology.nodes}

    def _status(self) -> ServersStatus:
        """Of the servers that there are now."""
        return self._servers.status()

    def status(self) -> QueryStatus:
        return {**self._servers.status(), "committed": self._checkpoint.committed(), "query": self.query}

    def committed(self) -> Epoch:
        return self._checkpoint.committed()

    # ------------------------------------------------------------- sink logs

    def _lookup(self, origin: Origin, from_offset: LogOffset) -> HolderReply:
        """What the sinks keep of an instance's log."""
        with self._sinks.log_readers() as readers:
            kept = [partial(index_of, reader) for reader in readers.values()]
            return told("the sinks' logs", origin, from_offset, kept)

    # --------------------------------------------------------------- commits

    def _watch(self) -> None:
        stops = False
        while not stops:
            stops = self._stopping.wait(COMMIT_POLL_SECONDS)  # the last commit is recorded, too
            try:
                with self._forgetting:
                    self.look_for_commits()
                self._look_at_sinks()
                if self._sinks_may_idle:
                    self.held.tell(self.forgotten)
            except Fenced:
                return  # another driver has taken over; a program that waits for the query hears of it
            except StorageUnavailable as error:
                self._cannot_record(
                    "checkpoint_unreadable", "a commit cannot be looked for, or recorded, now", error
                )
            except ClonosError as error:
                self._cannot_record("logs_not_truncated", "logs were not truncated", error)
            except Exception as error:  # a bug: rows are still made, so the next commit may still be recorded
                self._cannot_record("logs_not_truncated", "a commit was not recorded", error)

    def _cannot_record(self, event: str, what: str, error: Exception) -> None:
        """Where sinks hold rows, these wait for it."""
        if self._awaits_record():
            self._cannot_show(error)
        else:
            self._warn(event, what, error)

    def _awaits_record(self) -> bool:
        """Whether sinks hold rows that would be seen if a commit were recorded."""
        try:
            return not self._recoveries.replace and self.committed() > self.forgotten
        except ClonosError:
            return True  # what has committed cannot be read

    def _cannot_show(self, error: Exception) -> None:
        """What will not pass ends the query: rows would be held for ever."""
        self._warn("rows_held", "rows of an epoch that has committed cannot be shown now", error)
        self.held.has_failed(error)
        if isinstance(error, ClonosError) and not error.retryable:
            self._end(error)

    def _show_between_starts(self, committed: Epoch, *, takes_over: bool) -> Steps:
        with self._starting:
            return (yield from self.show_committed(committed, takes_over=takes_over))

    def _warn(self, event: str, what: str, error: Exception) -> None:
        if self._seldom.is_due((event, self.forgotten)):
            about_it = about(event, query=self.query, epoch=self.forgotten)
            LOG.warning("%s: %s", what, error, extra=about_it, exc_info=traced(error))

    def tell_commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        self._servers.commit(epoch, truncation_points)
        if not self._sinks_may_idle:
            self.on_shown()

    def forget_left_behind(self) -> None:
        self._servers.forget_left_behind()

    def trim_sinks(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        self._sinks.truncate(self._fence, lambda raw: still_needed(raw, truncation_points))


def _origin_of(failure: FailureReport) -> Origin | None:
    node, instance = failure["node"], failure["instance"]
    return None if node is None or instance is None else Origin(NodeId(node), InstanceId(instance))
