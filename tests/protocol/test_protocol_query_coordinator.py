"""What a driver does at a start of its query, and when an epoch has committed; in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from clonos.errors import (
    CheckpointMismatch,
    ClonosError,
    Fenced,
    SinkUnavailable,
    SnapshotCorrupt,
    StorageUnavailable,
)
from clonos.protocol.fence import Fence, generation_of
from clonos.protocol.ids import NodeId, Origin
from clonos.protocol.line.commit_reconciliation import Found
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.final_snapshot import FinalSnapshot, FinalSnapshots
from clonos.protocol.line.recovery_line import Point, RecoveryLine
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.protocol.roles.steps import Steps, carry_out
from clonos.protocol.topology import Node, NodeKind, Topology

CHAIN = Topology(
    (
        Node(1, NodeKind.SOURCE, "in", 1),
        Node(2, NodeKind.OPERATOR, "op", 1, (1,)),
        Node(3, NodeKind.SINK, "out", 1, (2,)),
    )
)
OPERATOR, SINK = Origin(2, 0), Origin(3, 0)
SNAPSHOT = str(SnapshotName(3, Fence.of(1), 1, final=True))
INSIDE = str(SnapshotName(5, Fence.of(1), 1, final=False))


class RecordedSink:
    """One sink's store, in memory."""

    def __init__(self, done: list[str], name: str = "sink") -> None:
        self._done = done
        self._name = name
        self.kept: CommitRecord | None = None
        self.standing = Fence.of(0)
        self.is_away = False

    def raise_fence(self, fence: Fence) -> Steps:
        self._done.append(f"fence {self._name}s {generation_of(fence)}")
        yield from ()

    def standing_fence(self) -> Fence:
        return self.standing

    def record_commit(self, fence: Fence, epoch: int, record: bytes) -> None:
        if self.is_away:
            raise SinkUnavailable("it is away")
        self._done.append(f"record in the {self._name}")
        self.kept = CommitRecord.from_bytes(record, self._name)

    def last_commit(self) -> tuple[int, bytes] | None:
        return None if self.kept is None else (self.kept.epoch, self.kept.to_bytes())


class Recorded(QueryCoordinator):
    """Writes down what it is asked to do; the checkpoint and the sinks are in memory."""

    def __init__(self, *, is_realtime: bool = False) -> None:
        super().__init__(CHAIN, is_realtime=is_realtime, recoveries=Recoveries.of(CHAIN, RecoveryKind.CAUSAL))
        self.done: list[str] = []
        self.highest = 0
        self.spark_committed = -1
        self.kept: CommitRecord | None = None
        self.sink = RecordedSink(self.done)
        self.stores = {SINK.node: self.sink}
        self.is_another = False
        self.changes_at: int | None = None
        self.damaged: ClonosError | None = None
        self.planned = -1
        self.snapshot_is_gone = False
        self.snapshots: dict[Origin, list[str]] = {}
        self.lines: list[RecoveryLine] = []
        self.overtaken = False
        self.unrecorded: list[UnrecordedCommit] = []
        self.unreadable: ClonosError | None = None
        self._records = CommitRecords(self, CHAIN)

    def since(self, mark: int) -> list[str]:
        return self.done[mark:]

    # ------------------------------------------------------ of the commit store

    def found(self) -> Found:
        return Found(
            committed=self.spark_committed,
            passed=self.passed(),
            kept=self.kept,
            shown={node: sink.kept for node, sink in self.stores.items() if sink.kept is not None},
            offsets=dict.fromkeys(range(10), b"o"),
            commits={self.spark_committed: b"c"},
            snapshots=self.snapshots,
            cursors={SINK: {OPERATOR.channel: 1}},
        )

    def record_of(self, epoch: int, generation: int, ends: Mapping[Origin, Ended]) -> CommitRecord:
        self.done.append(f"sync epoch {epoch}")
        return CommitRecord(
            query="q",
            epoch=epoch,
            generation=generation,
            ends=ends,
            cursors={},
            offsets=b"o",
            commits=b"c",
        )

    def final_snapshots(self, epoch: int) -> FinalSnapshots:
        if self.unreadable is not None:
            raise self.unreadable
        if epoch < 0 or self.snapshot_is_gone:
            return {}
        return {OPERATOR: FinalSnapshot(Point(SNAPSHOT, 10 * epoch, {0: 1}, {}), epoch)}

    def newest_line(self) -> RecoveryLine | None:
        return self.lines[-1] if self.lines else None

    def keep_in_checkpoint(self, record: CommitRecord) -> None:
        self.done.append("record in the checkpoint")
        self.kept = record

    @property
    def sinks(self) -> dict[int, RecordedSink]:
        return self.stores

    def keep_unrecorded(self, unrecorded: UnrecordedCommit) -> None:
        self.unrecorded.append(unrecorded)

    def repair(self, record: CommitRecord) -> None:
        self.done.append("repair")

    def complete(self, epoch: int, commits: bytes) -> None:
        self.done.append(f"complete {epoch} {commits.decode()}")
        self.spark_committed = epoch

    def sync_spark_files(self) -> None:
        self.done.append("sync")

    # ---------------------------------------------------------- of the role

    @property
    def records(self) -> CommitRecords:
        return self._records

    def campaign(self, *, above: int) -> Steps:
        self.highest = max(self.highest, above) + 1
        yield from self._does(f"claim {self.highest}")
        return self.highest

    def _does(self, what: str) -> Steps:
        self.done.append(what)
        yield

    def check_leads(self) -> None:
        if self.overtaken:
            raise Fenced("another driver leads")

    def begin_channels(self, generation: int, heard_of: int) -> Steps:
        return self._does(f"channels {generation}")

    def program_is_another(self) -> bool:
        return self.is_another

    def take_over_program(self, generation: int) -> None:
        self.done.append("program")

    def programs(self) -> dict[int, str]:
        return {}

    def program_changes_at(self, epoch: int) -> bool:
        return epoch == self.changes_at

    def fence_servers(self, generation: int) -> Steps:
        return self._does(f"fence servers {generation}")

    def begin_hosts(self, generation: int) -> Steps:
        return self._does("hosts")

    def passed(self) -> int:
        return max(self.spark_committed, self.planned - 1)

    def snapshots_inside(self, epoch: int) -> Mapping[Origin, Sequence[Point]]:
        if self.damaged is not None:
            raise self.damaged
        return {OPERATOR: [Point(INSIDE, 10 * epoch + 5, {0: 2}, {})]}

    def cursors(self) -> Mapping[Origin, Mapping[int, int]]:
        return {SINK: {OPERATOR.channel: 2}}

    def keep_line(self, line: RecoveryLine) -> None:
        self.done.append("line")
        self.lines.append(line)

    def committed(self) -> int:
        return self.spark_committed

    def tell_commit(self, epoch: int, truncation_points: Mapping[Origin, int]) -> None:
        self.done.append(f"servers forget before {truncation_points[OPERATOR]}")

    def forget_left_behind(self) -> None:
        self.done.append("forget former servers")

    def trim_sinks(self, truncation_points: Mapping[Origin, int]) -> None:
        self.done.append(f"sinks forget before {truncation_points[OPERATOR]}")


@pytest.fixture
def driver() -> Recorded:
    return Recorded()


def begun(driver: Recorded, *, resumes: bool = False) -> Recorded:
    carry_out(driver.begin_driver())
    carry_out(driver.begin_start(resumes=resumes))
    return driver


def test_everything_older_is_fenced_before_an_instance_begins_in_the_sinks_first(driver: Recorded) -> None:
    begun(driver)
    assert driver.done == [
        "claim 1",
        "channels 1",
        "program",
        "channels 1",
        "fence sinks 1",
        "sync",
        "fence servers 1",
        "hosts",
        "line",
    ]
    assert driver.generation == 1


def test_the_next_start_has_the_next_generation(driver: Recorded) -> None:
    begun(driver)
    mark = len(driver.done)
    carry_out(driver.begin_start(resumes=False))
    assert driver.since(mark)[0] == "claim 2"
    assert driver.generation == 2


def test_a_generation_is_above_what_the_sink_has_heard_of(driver: Recorded) -> None:
    """An older copy of the checkpoint does not know them all."""
    driver.sink.standing = Fence.of(7)
    assert begun(driver).generation == 8


def test_before_another_program_looks_at_the_open_epoch_older_writers_are_fenced(driver: Recorded) -> None:
    driver.is_another = True
    begun(driver)
    assert driver.done.index("fence sinks 1") < driver.done.index("program")
    assert driver.done.count("fence sinks 1") == 1


def test_what_does_not_fit_together_is_refused_before_any_writer_is_fenced(driver: Recorded) -> None:
    driver.spark_committed = 3
    begun(driver)
    driver.look_for_commits()
    mark, driver.spark_committed = len(driver.done), 1
    with pytest.raises(CheckpointMismatch):
        carry_out(driver.begin_start(resumes=False))
    assert not any(what.startswith("fence") for what in driver.since(mark))


def test_a_commit_is_durable_and_recorded_before_anything_is_forgotten(driver: Recorded) -> None:
    begun(driver)
    mark, driver.spark_committed = len(driver.done), 5
    driver.look_for_commits()
    assert driver.since(mark) == [
        "sync epoch 5",
        "record in the checkpoint",
        "record in the sink",
        "servers forget before 50",
        "sinks forget before 50",
        "forget former servers",
    ]
    driver.look_for_commits()
    assert len(driver.done) == mark + 6


def test_every_sink_is_fenced_and_has_the_record_before_anything_is_forgotten(driver: Recorded) -> None:
    other = driver.stores[NodeId(4)] = RecordedSink(driver.done, "other")
    begun(driver)
    assert driver.done.index("fence others 1") < driver.done.index("fence servers 1")
    mark, driver.spark_committed, other.is_away = len(driver.done), 5, True
    with pytest.raises(SinkUnavailable):
        driver.look_for_commits()
    assert driver.since(mark) == ["sync epoch 5", "record in the checkpoint", "record in the sink"]
    other.is_away = False
    driver.look_for_commits()
    assert driver.done[-4:] == [
        "record in the other",
        "servers forget before 50",
        "sinks forget before 50",
        "forget former servers",
    ]


def test_a_generation_is_above_what_any_sink_has_heard_of(driver: Recorded) -> None:
    other = driver.stores[NodeId(4)] = RecordedSink(driver.done, "other")
    other.standing = Fence.of(9)
    assert begun(driver).generation == 10


def test_what_former_servers_have_left_is_kept_until_an_epoch_of_this_driver_has_committed(
    driver: Recorded,
) -> None:
    """A commit that was there before says nothing of the open epoch."""
    driver.spark_committed, driver.snapshots = 5, {OPERATOR: [SNAPSHOT]}
    begun(driver)
    driver.look_for_commits()
    assert "servers forget before 50" in driver.done and "forget former servers" not in driver.done
    carry_out(driver.begin_start(resumes=False))
    driver.look_for_commits()
    assert "forget former servers" not in driver.done
    driver.spark_committed = 6
    driver.look_for_commits()
    assert driver.done[-1] == "forget former servers"


def test_an_overtaken_driver_forgets_nothing(driver: Recorded) -> None:
    begun(driver)
    mark, driver.spark_committed, driver.overtaken = len(driver.done), 5, True
    with pytest.raises(Fenced):
        driver.look_for_commits()
    assert not driver.since(mark)


def test_nothing_is_forgotten_before_the_first_start_and_while_one_is_made(driver: Recorded) -> None:
    driver.spark_committed = 5
    carry_out(driver.begin_driver())
    mark = len(driver.done)
    driver.look_for_commits()
    for _ in driver.begin_start(resumes=False):
        if "sync" not in driver.since(mark):
            driver.look_for_commits()
    assert "sync epoch 5" not in driver.done
    driver.look_for_commits()
    assert "sync epoch 5" in driver.done


def test_instances_begin_inside_the_epoch_where_they_may(driver: Recorded) -> None:
    driver.spark_committed = 4
    begun(driver, resumes=True)
    assert driver.lines[0].resumes[OPERATOR].name == INSIDE


@pytest.mark.parametrize(
    "why", ["another program begins", "a snapshot is damaged", "the checkpoint is an older copy"]
)
def test_else_they_begin_behind_the_last_epoch(driver: Recorded, why: str) -> None:
    driver.spark_committed = 4
    if why == "another program begins":
        driver.changes_at = 5
    elif why == "a snapshot is damaged":
        driver.damaged = SnapshotCorrupt("a file is gone")
    else:
        driver.sink.standing = Fence.of(7)  # of a start that has drawn no line in this checkpoint
    begun(driver, resumes=True)
    (line,) = driver.lines
    assert not line.resumes and line.epoch == 5
    assert line.bases == {OPERATOR: SNAPSHOT} and line.truncation_points == {OPERATOR: 40}


def test_who_waits_for_a_record_hears_why_it_does_not_come(driver: Recorded) -> None:
    """Once, and not of what trying again can mend."""
    begun(driver)
    driver.spark_committed = 5
    for error in (
        StorageUnavailable("away"),
        SnapshotCorrupt("gone", hint="Restore it"),
        SnapshotCorrupt("gone"),
    ):
        driver.unreadable = error
        for _ in range(2):
            with pytest.raises(type(error)):
                driver.look_for_commits()
    first, second = driver.unrecorded
    assert (
        first.is_of(5, generation=1) and not first.is_of(4, generation=1) and not first.is_of(5, generation=2)
    )
    assert isinstance(first.cause(), SnapshotCorrupt)
    assert str(first.cause()) == "the driver cannot record the commit of epoch 5: gone. Restore it"
    assert second.message == "gone"
    driver.unreadable = None
    driver.look_for_commits()
    assert driver.kept is not None and driver.kept.epoch == 5


@pytest.mark.parametrize("is_realtime", [False, True])
def test_the_line_says_whether_the_start_runs_in_real_time(is_realtime: bool) -> None:
    driver = begun(Recorded(is_realtime=is_realtime))
    assert driver.lines[0].realtime == is_realtime


@pytest.mark.parametrize("when", ["a commit is seen", "another start begins"])
def test_an_instance_that_has_run_is_not_new_because_its_snapshot_is_gone(when: str) -> None:
    """Before any record names it: in real time all instances run."""
    driver = begun(Recorded(is_realtime=True))
    driver.spark_committed, driver.snapshot_is_gone = 0, True
    with pytest.raises(SnapshotCorrupt, match="all instances run in real time"):
        if when == "a commit is seen":
            driver.look_for_commits()
        else:
            carry_out(driver.begin_start(resumes=False))
    assert driver.kept is None and len(driver.lines) == 1


def test_a_commit_that_spark_lost_before_it_was_recorded_is_written_again(driver: Recorded) -> None:
    """It had planned the epoch behind it. That is settled before the next program is asked which epoch is open."""
    driver.spark_committed = 3
    begun(driver)
    driver.look_for_commits()
    mark, driver.planned, driver.snapshots = len(driver.done), 5, {OPERATOR: [SNAPSHOT]}
    carry_out(driver.begin_driver())
    assert driver.since(mark).index("complete 4 c") < driver.since(mark).index("program")
    assert driver.since(mark).count("complete 4 c") == 1
