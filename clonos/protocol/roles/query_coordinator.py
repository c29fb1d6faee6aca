"""What a driver does at a start of its query, and when an epoch has committed; in which order.

A start claims a generation before it touches anything else. Then it compares the records of commits, which refuses what
does not fit together before any writer is fenced; fences the sinks, so that nothing older becomes visible any more;
settles what has committed; tells the replica servers, which end what is older; and draws the line that instances begin
at. It is in the logs by then what an old writer made visible before it was fenced.

Only when `commits/<N>` stands, and has been recorded, may anything be forgotten, and only what lies before the
snapshots at the end of epoch N. When that is an epoch that this driver has run, every instance has put its log together
in it, and no instance asks any more for logs that servers of earlier drivers have left behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from clonos.errors import ClonosError, Fenced, SinkUnavailable
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.ids import NO_EPOCH, Epoch, LogOffset, Origin, epoch_after, epoch_before
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.final_snapshot import FinalSnapshots
from clonos.protocol.line.positions import Positions, positions_at
from clonos.protocol.line.recovery_line import (
    Point,
    RecoveryLine,
    Standing,
    beginnings,
    program_at,
    recovery_line,
)
from clonos.protocol.line.rollback_line import rollback_line, rollback_target
from clonos.protocol.recovery.coordinated.round_coordinator import RoundCoordinator
from clonos.protocol.recovery.coordinated.rounds_beside_logs import RoundsBesideLogs
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.rollback.committed_epochs import CommittedEpochs
from clonos.protocol.recovery.rollback.progress import Progress
from clonos.protocol.recovery.rollback.rounds import SafePoint, StoredRound
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.recovery.uncoordinated.safe_line import SafeLine, durable, marked, safe_points
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.protocol.roles.steps import Steps
from clonos.protocol.topology import NodeKind, Topology


class QueryCoordinator(ABC):
    """One query in one driver. The runtime carries out the methods that are abstract here."""

    def __init__(self, topology: Topology, *, is_realtime: bool, recoveries: Recoveries) -> None:
        self._topology = topology
        self._recoveries = recoveries
        self._recovery = recoveries.line_kind
        self._is_realtime = is_realtime
        self.generation = NO_GENERATION  # of the start that is running
        self._claimed = NO_GENERATION  # by `begin_driver`, for the first start of the Spark query
        self._heard_of = NO_GENERATION  # the last start that the sink knew when this driver began
        self._deposed = NO_GENERATION  # all writers older than this generation
        self.forgotten = NO_EPOCH  # what lies before the end of this epoch
        self._first: Epoch | None = None  # that this driver has run
        self._line: RecoveryLine | None = None  # of the start that is running
        self.begins_at = Positions()  # the start that is running
        # By sink's instance that holds rows, up to which epoch all is visible
        self._shown: dict[Origin, Epoch] = {}
        self._tried: Counter[tuple[Origin, Epoch]] = Counter()  # to show it here
        self._begun: tuple[Epoch, Mapping[Origin, Point]] | None = None  # an epoch, and where instances did

    # ------------------------------------------------------------------ starts

    def begin_driver(self) -> Steps:
        """The driver leads, and its program is the checkpoint's from now on. Raises AlreadyRunning, and
        CheckpointMismatch."""
        heard_of = self._heard_of = self.records.last_generation
        self._claimed = yield from self._claim(heard_of)
        yield from self.begin_channels(self._claimed, heard_of)
        if self.records.look().repairs:  # before it matters which epoch is the next
            yield from self.depose(self._claimed)
        with self.undisturbed():
            if self.program_is_another():  # then it matters what has been seen
                yield from self.depose(self._claimed)
            self.take_over_program(self._claimed)

    def begin_start(self, *, resumes: bool) -> Steps:
        """One more start of the Spark query: when this ends, it may run. `resumes`: whether instances may begin inside
        the epoch that was under way."""
        heard_of = self.records.last_generation
        generation = self.generation = yield from self._claim(heard_of)
        yield from self.begin_channels(generation, heard_of)
        yield from self.depose(generation)
        yield from self.fence_servers(generation)
        yield from self.begin_hosts(generation)
        drawn, self.begins_at = self._draw_line(generation, resumes=resumes)
        line = replace(drawn, realtime=self._is_realtime)
        self._line, self._begun, self._shown, self._tried = line, None, {}, Counter()
        self.keep_line(line)
        self._first = line.epoch if self._first is None else min(self._first, line.epoch)
        if self._sinks_may_idle:
            yield from self.show_committed(epoch_before(line.epoch))

    @property
    def _sinks_may_idle(self) -> bool:
        """Whether sinks hold rows, and none may be served for long: in micro-batch an epoch begins when there is
        input, and in real time at once."""
        return not self._is_realtime and not self._recoveries.replace

    def show_committed(self, committed: Epoch, *, takes_over: bool = False) -> Steps:
        """Where no process serves a sink's instance, show here what it holds of what has committed: such a process may
        have died in the middle of showing it. With `takes_over` also where one does, which has taken too long: it is
        fenced. Whether all of it is visible everywhere, as far as is known. Raises what showing raises; it may be tried
        again."""
        is_all, first = True, None
        for origin, end in self.sink_ends(committed).items():
            if self._shown.get(origin, NO_EPOCH) >= end.checkpoint.epoch:
                continue
            if self.is_served(origin) and not takes_over:
                is_all = False
                continue
            try:
                is_all &= yield from self._show_held(origin, end, committed)
            except Fenced:
                raise
            except ClonosError as error:  # it holds up no other
                first = first or error
        if first is not None:
            raise first
        return is_all

    def _show_held(self, origin: Origin, end: SinkEnd, committed: Epoch) -> Steps:
        """Whether it is visible."""
        ended = end.checkpoint.epoch
        tried = self._tried[origin, ended]
        self._tried[origin, ended] += 1
        request = end.request(origin, epoch_after(committed), self.generation, tried=tried)
        try:
            yield from self.show_held(request, committed)
        except Fenced as error:
            self.check_leads()
            if self.is_served(origin):  # a task of the next epoch has begun, and its process shows it
                return False
            raise SinkUnavailable(
                f"instance {origin.instance} of {self._topology.node(origin.node).name!r} is claimed by a process that "
                f"does not serve it: {error.message}",
                hint="A start of the query shows what it holds",
            ) from error
        self._shown[origin] = ended
        return True

    def _claim(self, heard_of: Generation) -> Steps:
        """A generation above all that the sink has heard of: a checkpoint that was restored from an older copy does not
        know them all."""
        claimed, self._claimed = self._claimed, NO_GENERATION
        while claimed <= max(heard_of, self.generation):
            claimed = yield from self.campaign(above=heard_of)
        return claimed

    def depose(self, generation: Generation) -> Steps:
        """No older writer shows anything any more, and what Spark has lost of its commits is there again."""
        if self._deposed == generation:
            return
        self.records.look()  # what does not fit together is refused before any writer is fenced
        self.sweep()
        yield from self.records.fence_sinks(generation)
        self.records.settle(self.records.look(), generation)
        self.fit_offsets(generation)
        self._deposed = generation

    def _draw_line(self, generation: Generation, *, resumes: bool) -> tuple[RecoveryLine, Positions]:
        """Where instances begin, and how far that is. What is not known for certain leaves them at the end of the last
        epoch that is not run again; so does an epoch with which another program begins, and a checkpoint that is an
        older copy: what later starts did is not in its snapshots."""
        passed = self.passed()
        epoch = epoch_after(passed)
        finals = self.records.final_snapshots(passed)
        last = self.records.newest_line()
        if not self._recoveries.all_repeat:
            return self._draw_rollback_line(generation, epoch, finals, last, repeats_inside=resumes)
        if resumes and not self._is_older_copy(last) and not self.program_changes_at(epoch):
            try:
                standings, cursors = self._standings(finals, epoch, last), self.cursors()
                line = recovery_line(self._topology, standings, cursors, generation=generation, epoch=epoch)
                return line, positions_at(line, standings, cursors)
            except ClonosError as error:
                self.begins_behind(passed, error)
        ended = {origin: final.point for origin, final in finals.items()}
        standings = {origin: Standing(point) for origin, point in ended.items()}
        line = RecoveryLine(generation, epoch, **beginnings(ended))
        return line, positions_at(line, standings, {})

    def _draw_rollback_line(
        self,
        generation: Generation,
        epoch: Epoch,
        finals: FinalSnapshots,
        last: RecoveryLine | None,
        *,
        repeats_inside: bool,
    ) -> tuple[RecoveryLine, Positions]:
        """The same, where not all instances repeat what they did. `repeats_inside`: those that do may begin inside the
        epoch; the others do in any case, unless nothing of what was done in it counts.

        What the last start did inside the epoch counts if it ran the epoch with the program that runs it now."""
        programs, cursors = self.programs(), self.cursors()
        bases = {origin: final.point for origin, final in finals.items()}
        ends = self.sink_ends(epoch_before(epoch))
        bases |= {origin: end.point(cursors.get(origin, {})) for origin, end in ends.items()}
        is_another = last is not None and program_at(last.programs, epoch) != program_at(programs, epoch)
        repeats_inside = repeats_inside and not self._is_older_copy(last)
        standings = self._all_standings(bases, epoch, last, repeats_inside=repeats_inside)
        line = rollback_line(
            self._topology,
            standings,
            cursors,
            generation=generation,
            epoch=epoch,
            resumes=not is_another,
            recoveries=self._recoveries,
        )
        return replace(line, programs=programs), positions_at(line, standings, cursors)

    def _is_older_copy(self, last: RecoveryLine | None) -> bool:
        """Whether the sink knows of a start that has drawn no line in this checkpoint."""
        return self._heard_of > (last.generation if last is not None else NO_GENERATION)

    def _standings(
        self, finals: FinalSnapshots, epoch: Epoch, last: RecoveryLine | None
    ) -> dict[Origin, Standing]:
        """Of every operator's instance, at the beginning of the epoch and inside it, by the `last` start's line."""
        found = self.snapshots_inside(epoch)
        inside = (
            {origin: last.counting(origin, points) for origin, points in found.items()} if last else found
        )
        return {
            origin: Standing(finals[origin].point if origin in finals else None, inside.get(origin, ()))
            for origin in self._topology.instances(NodeKind.OPERATOR)
        }

    @property
    def _shows_at_once(self) -> bool:
        """Whether some sink does."""
        return not all(map(self._has_checkpoints, self._topology.instances(NodeKind.SINK)))

    def _has_checkpoints(self, origin: Origin) -> bool:
        """A sink that shows rows at once stands where its store does."""
        is_operator = self._topology.node(origin.node).kind is NodeKind.OPERATOR
        return is_operator or self._recoveries.holds(origin.node)

    def _all_standings(
        self,
        bases: Mapping[Origin, Point],
        epoch: Epoch,
        last: RecoveryLine | None,
        *,
        repeats_inside: bool,
    ) -> dict[Origin, Standing]:
        """Of every operator's and sink's instance, where not all repeat what they did. What the last start did in the
        epoch counts, also where a task of the next epoch has claimed the instance since, or one that has not begun. So
        does where the last start was to begin. Those that repeat begin with the epoch, or, with `repeats_inside`, with
        a snapshot of the newest attempt, as where all do."""
        of_newest = self.snapshots_inside(epoch) if repeats_inside and self._recoveries.some_repeat else {}
        found = {**of_newest, **self.all_snapshots_inside(epoch)}
        standings: dict[Origin, Standing] = {}
        for origin in filter(
            self._has_checkpoints, self._topology.instances(NodeKind.OPERATOR, NodeKind.SINK)
        ):
            inside = found.get(origin, ())
            counting = last.counting(origin, inside) if last else inside
            standings[origin] = Standing(bases.get(origin), counting)
        return standings

    def new_progress(self, *, interval: float, forgets_every: float = 0.0) -> Progress:
        """Of a start that begins now, where steps are not repeated. Where rows are seen at once, nothing waits for the
        safe line but what is to be forgotten: then it is drawn as if `forgets_every` were the interval, if that is
        longer. Both in seconds."""
        if self._recoveries.replace:
            interval = max(interval, forgets_every)
        instances = self._topology.instances(NodeKind.OPERATOR, NodeKind.SINK)
        if in_rounds := [each for each in instances if each.node in self._recoveries.in_rounds]:
            rounds = RoundCoordinator(in_rounds, interval=interval)
            keeping = self._recoveries.keeping
            return RoundsBesideLogs(rounds, self.safe_line, keeping) if keeping else rounds
        if self._recovery.logs_messages:
            return SafeLine(self.safe_line, interval=interval)
        return CommittedEpochs(self._shown)

    def safe_line(self, stored: Mapping[Origin, StoredRound]) -> dict[Origin, SafePoint]:
        """The line that the next start draws at the earliest, of instances that have stored checkpoints up to these in
        this start: a process that is asked later has stored more. What has committed is not undone either way."""
        begun = self._line
        if begun is None:
            return {}
        epoch = max(begun.epoch, epoch_after(self.forgotten))
        cursors = self.seen_cursors() if self._shows_at_once else {}
        standings = {
            origin: replace(standing, inside=self._lasting(origin, standing.inside, stored.get(origin)))
            for origin, standing in self._all_standings(
                self._bases(epoch), epoch, begun, repeats_inside=False
            ).items()
        }
        line = rollback_target(
            self._topology,
            standings,
            cursors,
            generation=begun.generation,
            epoch=epoch,
            recoveries=self._recoveries,
        )
        return safe_points(line)

    def _lasting(
        self, origin: Origin, inside: Sequence[Point], stored: StoredRound | None
    ) -> Sequence[Point]:
        """Those checkpoints that the next start will find, whatever happens until then. Of instances that take part in
        rounds all are durable where a line is drawn (`rounds_beside_logs`)."""
        in_rounds = origin.node in self._recoveries.in_rounds
        known = inside if in_rounds else durable(inside, self.generation, stored)
        return marked(known) if origin.node in self._recoveries.goes_back else known

    def _bases(self, epoch: Epoch) -> Mapping[Origin, Point]:
        """How instances began an epoch; it does not change while the epoch runs."""
        if self._begun is None or self._begun[0] != epoch:
            before = epoch_before(epoch)
            bases = {origin: final.point for origin, final in self.records.final_snapshots(before).items()}
            bases |= {origin: end.whole for origin, end in self.sink_ends(before).items()}
            self._begun = epoch, bases
        return self._begun[1]

    # ----------------------------------------------------------------- commits

    def look_for_commits(self) -> None:
        """Now and then. Forgets what no permitted recovery can ask for once an epoch has committed, and is known for
        ever to have. Raises Fenced where another driver leads, and other errors where it is to be tried again."""
        committed = self.committed()
        if committed <= self.forgotten or not self.generation or self._deposed != self.generation:
            return
        self.check_leads()
        record = self.records.record(committed, self.generation)
        truncation_points = self.truncation_points(record)
        self.tell_commit(committed, truncation_points)
        self.trim_sinks(truncation_points)
        if self._first is not None and committed >= self._first:
            self.forget_left_behind()
        self.forgotten = committed

    def truncation_points(self, record: CommitRecord) -> dict[Origin, LogOffset]:
        """Before these an instance's log is not asked for any more."""
        return {origin: end.log_offset for origin, end in record.ends.items()}

    # ------------------------------------------------- the runtime carries out

    @property
    @abstractmethod
    def records(self) -> CommitRecords: ...

    @abstractmethod
    def campaign(self, *, above: Generation) -> Steps:
        """A generation of its own, by `protocol.roles.leadership`."""

    @abstractmethod
    def check_leads(self) -> None:
        """Raises Fenced."""

    @abstractmethod
    def begin_channels(self, generation: Generation, heard_of: Generation) -> Steps:
        """This start is the one that numbers channels."""

    def undisturbed(self) -> AbstractContextManager[None]:
        """While no replica server is at work on this host's logs."""
        return nullcontext()

    @abstractmethod
    def program_is_another(self) -> bool:
        """Whether it matters to this program what has been seen of the open epoch."""

    @abstractmethod
    def take_over_program(self, generation: Generation) -> None:
        """By `protocol.versions.upgrade`. Raises CheckpointMismatch."""

    @abstractmethod
    def program_changes_at(self, epoch: Epoch) -> bool: ...

    @abstractmethod
    def programs(self) -> Mapping[Epoch, str]:
        """By the first epoch that it runs, a digest of each program."""

    def sweep(self) -> None:
        """Remove what Spark refuses to begin over."""
        return

    def fit_offsets(self, generation: Generation) -> None:
        """Spark's end offsets are as it expects them of this program; the records say the same."""
        return

    @abstractmethod
    def fence_servers(self, generation: Generation) -> Steps:
        """Of all hosts that count: when this ends, older replicas are dead."""

    @abstractmethod
    def begin_hosts(self, generation: Generation) -> Steps:
        """Which hosts' logs count in this start is settled, and durable."""

    @abstractmethod
    def passed(self) -> Epoch:
        """The last epoch that Spark does not run again."""

    @abstractmethod
    def snapshots_inside(self, epoch: Epoch) -> Mapping[Origin, Sequence[Point]]:
        """Of the newest attempt that claimed an instance, oldest first."""

    @abstractmethod
    def cursors(self) -> Mapping[Origin, Mapping[int, int]]:
        """Of the sinks, by channel."""

    def seen_cursors(self) -> Mapping[Origin, Mapping[int, int]]:
        """The same, at some moment of this start: what senders forget may wait."""
        return self.cursors()

    def is_served(self, origin: Origin) -> bool:
        """Whether a process serves the instance of a sink, and so shows what it holds."""
        return False

    def show_held(self, request: AttachRequest, committed: Epoch) -> Steps:
        """As a sink's instance (`holding_sink_session`) that takes this request, and hears that the epoch has
        committed. Raises Fenced where another one has begun to serve it."""
        raise NotImplementedError

    def sink_ends(self, epoch: Epoch) -> Mapping[Origin, SinkEnd]:
        """Of sinks that hold output: with which checkpoint each instance ended an epoch, or the last one before."""
        return {}

    def all_snapshots_inside(self, epoch: Epoch) -> Mapping[Origin, Sequence[Point]]:
        """Of operators that repeat nothing and of sinks that hold output, and of all attempts, oldest first."""
        return {}

    def begins_behind(self, epoch: Epoch, error: ClonosError) -> None:
        """The epoch is run from its beginning, because of this."""
        return

    @abstractmethod
    def keep_line(self, line: RecoveryLine) -> None: ...

    @abstractmethod
    def committed(self) -> Epoch:
        """The last epoch that Spark has committed; `NO_EPOCH` before the first."""

    @abstractmethod
    def tell_commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """To the replica servers: logs and snapshots before that may go."""

    def forget_left_behind(self) -> None:
        """What servers of earlier drivers have left behind that are not started any more."""
        return

    @abstractmethod
    def trim_sinks(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """What the sinks keep of logs before that may go."""
