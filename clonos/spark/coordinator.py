"""The driver's side of a running query: generations, holders of sink logs, commits and truncation.

Takes the leadership of the query before it touches anything of it, starts the replica server, speaks the determinant
service for what the sinks keep, raises the fence of every generation before it is used, and watches Spark's commit log:
only when `commits/<N>` stands, and has been recorded (`clonos.spark.commits`), may anything be forgotten, and only what
lies before the snapshots of epoch N (I7).
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.errors import ClonosError, Fenced, ResumeFailed, StorageUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.holding import HolderReply, Index, told
from clonos.protocol.recovery.causal.longest_prefix import OnGap
from clonos.protocol.topology import NodeKind, Topology
from clonos.protocol.versions.upgrade import another_query
from clonos.sinks.port import SinkLogReader
from clonos.spark.channels import SourceChannels, numbers_without_pages
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.commits import Commits
from clonos.spark.compile import Address, Compiled
from clonos.spark.executors import ExecutorServices
from clonos.spark.failure import named
from clonos.spark.leadership import DriverLeadership
from clonos.spark.recovery_line_builder import draw_line, final_snapshots, line_from_the_beginning
from clonos.spark.remote_servers import executors_servers, named_servers, reached_at
from clonos.spark.settings import Settings
from clonos.spark.ticks import fitted
from clonos.spark.upgrade import data_directory, take_over
from clonos.storage.host_memberships import HostMemberships
from clonos.storage.recovery_line_file import write_line
from clonos.wire.determinant_service import DeterminantServer
from clonos_standby.cluster.servers import Placement, ReplicaServers
from clonos_standby.cluster.spec import QuerySpec, ReplicaSettings
from clonos_standby.replica.holders import SERVER_FOLDER
from clonos_standby.server.log import LogFormat, about, driver_writes_json
from clonos_standby.server.seldom import Seldom

LOG = logging.getLogger("clonos")

COMMIT_POLL_SECONDS = 0.25
RECENT_SECONDS = 15.0


class Coordinator:
    """One query in one driver."""

    _entry: str | None = (
        None  # what replica processes run; tests of what happens without some part replace it
    )

    def __init__(
        self,
        compiled: Compiled,
        sink: Any,
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
        has the same records; `numbering` is the plugin's desk for the numbers of channels."""
        self._numbering = numbering
        self._compiled = compiled
        self._sink = sink
        self._settings = settings
        self._checkpoint = Checkpoint(location)
        self._topology = compiled.topology(realtime=realtime)
        self._same_source = same_source
        self._token = secrets.token_hex(16)
        self._driver_pids = driver_pids
        self._faults = faults
        self._stopping = threading.Event()
        self._forgetting = (
            threading.Lock()
        )  # held while a commit is recorded, and what it allows is forgotten
        self._truncated = -1
        self._seldom = Seldom()
        self._generation = 0
        self._claimed = 0  # by `start`, for the first start of the Spark query
        self._deposed = 0  # all writers older than this generation
        self._leadership = DriverLeadership(location, settings.data_dir)
        self.query = ""  # known when it has started
        self.data = ""
        self._sink.bind(self._checkpoint.location)
        self._driver_host = driver_host
        self._spread = spread
        self._realtime = realtime
        self._named = named_servers(settings, spread=spread)
        self._executors = executors if compiled.has_standbys() else None
        self._listen = reached_at(settings, driver_host if spread else "")

    # ------------------------------------------------------------------ life

    def start(self, on_lost: Callable[[Fenced], None] = lambda error: None) -> None:
        """Servers up; the first generation may begin. Raises AlreadyRunning where another driver leads the query, of
        which nothing has been touched then. `on_lost` hears of it when another driver has taken over."""
        if self._settings.log_format is LogFormat.JSON:
            driver_writes_json()
        self._checkpoint.check_split()
        self._leadership.on_lost = on_lost
        self._claimed = self._leadership.take()
        try:
            self._begin()
        except BaseException:
            self._leadership.release()
            raise

    def _begin(self) -> None:
        self.query = self._checkpoint.open(self._topology)
        # Another query is told so, before it matters what the checkpoint and this query's sink know of each other.
        history = self._checkpoint.history()
        if why := another_query(history, self._topology, same_source=self._same_source):
            raise why
        self._commits = Commits(self._checkpoint, self._topology, self._sink, self.query, self._fitted)
        self.data = data_directory(self._checkpoint.location, self.query, self._settings)
        Path(self.data).mkdir(parents=True, exist_ok=True)
        heard_of = self._commits.last_generation
        self._claimed = self._claim()
        self._begin_channels(history.bindings[-1].program, heard_of)
        if self._commits.look().repairs:  # before it matters which epoch is the next
            self._depose(self._claimed)
        self._history = take_over(
            self._checkpoint,
            self._topology,
            self._sink,
            self.query,
            self.data,
            fence=lambda: self._depose(self._claimed),
            forget_hosts=lambda: HostMemberships(self._checkpoint.location).keep(self._claimed, {}),
            same_source=self._same_source,
        )
        self._checkpoint.set_place(self.data)
        if self._executors is not None:
            self._executors.await_answers()
        self._service = DeterminantServer(
            self._lookup, self._token, query=self.query, host=self._listen, tls=self._named.tls
        )
        try:
            self._servers = self._start_servers()
        except BaseException:
            self._service.stop()
            raise
        self._watcher = threading.Thread(target=self._watch, name="clonos-commits", daemon=True)
        self._watcher.start()

    def _begin_channels(self, before: Topology, heard_of: int) -> None:
        pages = self._checkpoint.channel_pages(self._leadership.check)
        self._channels = SourceChannels(self._numbering, pages, self.query, self._compiled.only_named())
        known = numbers_without_pages(self._checkpoint, before, self._topology)
        self._channels.begin(self._claimed, known, heard_of=heard_of)

    def _start_servers(self) -> ReplicaServers:
        spec = QuerySpec(
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
            ),
            nodes=self._compiled.node_specs(self._history),
            determinants=(self._service.address,),
            faults=self._faults,
            names={node.number: node.name for node in self._topology.nodes},
            metrics_port=self._settings.metrics_port,
            damage_accepted=self._settings.on_gap is OnGap.AT_LEAST_ONCE
            and self._checkpoint.given_up().generation > 0,
            numbers_from=self._checkpoint.given_up().numbers,
            listen=self._listen,
            tls=self._named.tls,
            log_format=self._settings.log_format,
        )
        return ReplicaServers(
            spec,
            self._placement(),
            entry=self._entry,
            silence=self._settings.heartbeat,
            may_ask=self._leadership.check,
        )

    def _placement(self) -> Placement:
        """With the services that executors have at this moment."""
        if self._executors is not None:
            self._named = executors_servers(self._named, self._executors, self.data)
        return Placement(
            self._named,
            self._compiled.instances_elsewhere(len(self._named.services), spread=self._spread),
            standbys=self._compiled.has_standbys(),
            history=self._checkpoint.given_up().generation,
            host=self._driver_host,
            spread=self._spread,
            executors=self._executors is not None,
        )

    def give_up_history(self) -> None:
        """Somebody depends on what nobody holds, and the user prefers repeated output to none.

        Repeating an epoch in part is worth nothing: whatever comes after the gap was recorded against output that will
        come out differently. So all that was recorded since the last committed epoch is dropped, everywhere, and the
        output is numbered anew, so that nothing is taken for what has been shown before. The mark is written first:
        a driver that dies in the middle of this leaves no recording behind that a later one would take for whole.
        """
        self._servers.stop()
        generation = self._generation = self._claim()
        self._channels.begin(generation)
        self._sink.raise_fence(self.query, self._fence)  # what is visible is what will have been
        numbers = max(self._checkpoint.given_up().numbers, self._commits.numbers())
        self._checkpoint.give_up(generation, numbers)
        for logs in (Path(self.data, "logs"), *Path(self.data).glob(f"{SERVER_FOLDER}*/logs")):
            shutil.rmtree(logs, ignore_errors=True)
        self._sink.truncate(self.query, self._fence, lambda raw: False)
        self._servers = self._start_servers()

    def next_generation(self) -> Address:
        """Fence everything older, in the sinks first: what an old writer still makes visible must be in the logs that
        the new generation reads."""
        resumes = self._realtime and not self._failed_to_resume()
        generation = self._generation = self._claim()
        self._channels.begin(generation)
        self._depose(generation)
        self._servers.set_generation(generation)
        if self._executors is not None:
            self._servers.settle(self._placement())
        self._servers.begins(generation)
        line = self._draw_line(generation, resumes=resumes)
        write_line(self._checkpoint.location, replace(line, realtime=self._realtime))
        self._channels.open(generation)
        return Address(
            self._servers.addresses,
            self._token,
            generation,
            self._named.tls,
            self._spread,
            self._channels.tables(generation),
        )

    def _depose(self, generation: int) -> None:
        """No older writer shows anything any more, and what Spark has lost of its commits is there again."""
        if self._deposed == generation:
            return
        with self._forgetting:
            self._commits.look()  # what does not fit together is refused before anybody is fenced
            self._checkpoint.sweep()
            self._sink.raise_fence(self.query, Fence.of(generation))
            self._commits.settle(self._commits.look(), generation)
            self._commits.fit_offsets(generation)
        self._deposed = generation

    def _fitted(self, offsets: bytes) -> bytes:
        sources = sum(node.kind is NodeKind.SOURCE for node in self._topology.nodes)
        return fitted(offsets, sources, ticking=self._compiled.has_ticks(realtime=self._realtime))

    @property
    def _fence(self) -> Fence:
        """Of this driver, in this start of the query."""
        return Fence.of(self._generation)

    def _claim(self) -> int:
        """A generation for one more start, above all that the sink has heard of: a checkpoint that was restored from an
        older copy does not know them all."""
        claimed, self._claimed = self._claimed, 0
        heard_of = self._commits.last_generation
        while claimed <= max(heard_of, self._generation):
            claimed = self._leadership.next_generation(above=heard_of)
        return claimed

    def _failed_to_resume(self) -> bool:
        """Whether an instance of the last start could not go on from where it was to."""
        try:
            failures = self._servers.status()["failures"]
        except ClonosError:
            return False
        return any(
            failure["generation"] == self._generation and failure["error"] == ResumeFailed.__name__
            for failure in failures
        )

    def _draw_line(self, generation: int, *, resumes: bool) -> RecoveryLine:
        """Where instances begin. What is not known for certain leaves them at the end of the last committed epoch; so
        does a history that was given up, of which nothing may be gone on with."""
        committed = self._checkpoint.passed()
        epoch = committed + 1
        finals = final_snapshots(self._checkpoint.location, self._topology, committed)
        resumes = resumes and not self._history.changes_at(epoch)
        if resumes and self._checkpoint.given_up().generation < generation - 1:
            try:
                reader = self._sink.log_reader(self.query)
                return draw_line(
                    self._checkpoint.location,
                    self._topology,
                    reader,
                    finals,
                    generation=generation,
                    epoch=epoch,
                )
            except ClonosError as error:
                LOG.warning("the epoch is run from its beginning: %s", error)
        return line_from_the_beginning(finals, generation=generation, epoch=epoch)

    def stop(self) -> None:
        """Replicas, servers and threads are gone when this returns."""
        self._stopping.set()
        self._watcher.join()
        self._channels.stop()
        self._servers.stop()
        self._service.stop()
        self._leadership.release()

    def cause_of_failure(self) -> ClonosError | None:
        """What a replica or a conduit of this generation has just failed with; what cannot be mended before what can.

        In real time all stages of a query fail together, and Spark reports whichever failure it heard first: often that
        of a neighbour whose connection broke, and not the reason.
        """
        try:
            said = self._servers.status()["failures"]
        except ClonosError:
            return None
        since = time.time() - RECENT_SECONDS
        causes = [
            named(failure["error"], failure["message"])
            for failure in said
            if failure["generation"] == self._generation and failure["at"] >= since
        ]
        return min(causes, key=lambda cause: cause.retryable, default=None)

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

    def status(self) -> dict[str, Any]:
        return {**self._servers.status(), "committed": self._checkpoint.committed(), "query": self.query}

    @property
    def committed(self) -> int:
        return self._checkpoint.committed()

    # ------------------------------------------------------------- sink logs

    def _lookup(self, node: int, instance: int, from_offset: int) -> HolderReply:
        """What the sink keeps of an instance's log."""
        reader = self._sink.log_reader(self.query)
        try:
            return told("the sink's log", Origin(node, instance), from_offset, [lambda: sinks_index(reader)])
        finally:
            reader.close()

    # --------------------------------------------------------------- commits

    def _watch(self) -> None:
        while not self._stopping.wait(COMMIT_POLL_SECONDS):
            try:
                committed = self._checkpoint.committed()
                if committed > self._truncated and self._generation:
                    self._leadership.check()
                    with self._forgetting:
                        self._truncate(committed)
                    self._truncated = committed
            except Fenced:
                return  # another driver has taken over; whoever waits for the query hears of it
            except StorageUnavailable as error:
                self._warn(
                    "checkpoint_unreadable",
                    "a commit cannot be looked for, or recorded, now; trying again",
                    error,
                )
            except ClonosError as error:
                self._warn("logs_not_truncated", "logs were not truncated; trying again", error)

    def _warn(self, event: str, what: str, error: ClonosError) -> None:
        if self._seldom.is_due((event, self._truncated)):
            LOG.warning("%s: %s", what, error, extra=about(event, query=self.query, epoch=self._truncated))

    def _truncate(self, epoch: int) -> None:
        """Forget what no permitted recovery can ask for once `epoch` has committed, and is known for ever to have."""
        ends = self._commits.record(epoch, self._generation).ends
        stable = {(origin.node, origin.instance): end.log_offset for origin, end in ends.items()}
        self._servers.commit(epoch, {f"{node}/{instance}": at for (node, instance), at in stable.items()})
        self._sink.truncate(self.query, self._fence, lambda raw: still_needed(raw, stable))


def sinks_index(reader: SinkLogReader) -> Index:
    """What the logs of all sinks say."""
    index = Index()
    index.take_deltas(reader.deltas())
    for what in reader.corrupt:
        index.damage(what)
    return index
