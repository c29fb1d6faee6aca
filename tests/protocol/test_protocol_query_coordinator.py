"""What a driver does at a start of its query, and when an epoch has committed; in which order."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clonos.errors import CheckpointMismatch, ClonosError, Fenced, SnapshotCorrupt
from clonos.protocol.ids import Origin
from clonos.protocol.line.commit_reconciliation import Found
from clonos.protocol.line.commit_record import CommitRecord, Ended
from clonos.protocol.line.recovery_line import RecoveryLine
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.protocol.roles.incarnation import carry_out
from clonos.protocol.roles.query_coordinator import QueryCoordinator, Steps

OPERATOR = Origin(2, 0)
SNAPSHOT = "5-0000000000000001-0001-final"


class Recorded(QueryCoordinator):
    """Writes down what it is asked to do; the checkpoint and the sink are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.highest = 0
        self.spark_committed = -1
        self.heard = 0
        self.kept: CommitRecord | None = None
        self.shown: CommitRecord | None = None
        self.is_another = False
        self.changes_at: int | None = None
        self.damaged: ClonosError | None = None
        self.lines: list[RecoveryLine] = []
        self.overtaken = False
        self._records = CommitRecords(self)

    def since(self, mark: int) -> list[str]:
        return self.done[mark:]

    # ------------------------------------------------------ of the commit store

    def found(self) -> Found:
        return Found(
            committed=self.spark_committed, passed=self.spark_committed, kept=self.kept, shown=self.shown
        )

    def record_of(self, epoch: int, generation: int) -> CommitRecord:
        self.done.append(f"sync epoch {epoch}")
        return CommitRecord(
            query="q",
            epoch=epoch,
            generation=generation,
            ends=dict(self.ends(epoch)),
            cursors={},
            offsets=b"o",
            commits=b"c",
        )

    def ends(self, epoch: int) -> Mapping[Origin, Ended]:
        return {OPERATOR: Ended(SNAPSHOT, 10 * epoch, epoch)} if epoch >= 0 else {}

    def keep_in_checkpoint(self, record: CommitRecord) -> None:
        self.done.append("record in the checkpoint")
        self.kept = record

    def keep_in_sink(self, record: CommitRecord) -> None:
        self.done.append("record in the sink")
        self.shown = record

    def repair(self, record: CommitRecord) -> None:
        self.done.append("repair")

    def sync_spark_files(self) -> None:
        self.done.append("sync")

    def standing_generation(self) -> int:
        return self.heard

    def shown_generation(self) -> int:
        return self.shown.generation if self.shown is not None else 0

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

    def program_changes_at(self, epoch: int) -> bool:
        return epoch == self.changes_at

    def fence_sinks(self, generation: int) -> Steps:
        return self._does(f"fence sinks {generation}")

    def fence_servers(self, generation: int) -> Steps:
        return self._does(f"fence servers {generation}")

    def begin_hosts(self, generation: int) -> Steps:
        return self._does("hosts")

    def passed(self) -> int:
        return self.spark_committed

    def line_inside(self, epoch: int, generation: int) -> RecoveryLine:
        if self.damaged is not None:
            raise self.damaged
        self.done.append("line inside")
        return RecoveryLine(generation, epoch)

    def keep_line(self, line: RecoveryLine) -> None:
        self.done.append("line")
        self.lines.append(line)

    def committed(self) -> int:
        return self.spark_committed

    def tell_commit(self, epoch: int, stable: Mapping[Origin, int]) -> None:
        self.done.append(f"servers forget before {stable[OPERATOR]}")

    def trim_sinks(self, stable: Mapping[Origin, int]) -> None:
        self.done.append(f"sinks forget before {stable[OPERATOR]}")


@pytest.fixture
def driver() -> Recorded:
    return Recorded()


def begun(driver: Recorded, *, resumes: bool = False) -> Recorded:
    carry_out(driver.begin_driver())
    carry_out(driver.begin_start(resumes=resumes))
    return driver


def test_everything_older_is_fenced_before_anybody_begins_in_the_sinks_first(driver: Recorded) -> None:
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
    driver.heard = 7
    assert begun(driver).generation == 8


def test_before_another_program_looks_at_the_open_epoch_older_writers_are_fenced(driver: Recorded) -> None:
    driver.is_another = True
    begun(driver)
    assert driver.done.index("fence sinks 1") < driver.done.index("program")
    assert driver.done.count("fence sinks 1") == 1


def test_what_does_not_fit_together_is_refused_before_anybody_is_fenced(driver: Recorded) -> None:
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
    ]
    driver.look_for_commits()
    assert len(driver.done) == mark + 5


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
    begun(driver, resumes=True)
    assert "line inside" in driver.done


@pytest.mark.parametrize("why", ["another program begins", "a snapshot is damaged"])
def test_else_they_begin_behind_the_last_epoch(driver: Recorded, why: str) -> None:
    driver.spark_committed = 4
    if why == "another program begins":
        driver.changes_at = 5
    else:
        driver.damaged = SnapshotCorrupt("a file is gone")
    begun(driver, resumes=True)
    (line,) = driver.lines
    assert "line inside" not in driver.done and line.epoch == 5
    assert driver.ends(4)[OPERATOR].snapshot in str(line)
