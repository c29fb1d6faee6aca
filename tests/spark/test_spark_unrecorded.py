"""A commit that the driver cannot record: an instance that waits for the record ends with the driver's error, and no
other instance does."""

from __future__ import annotations

from typing import Any

import pytest
from streams import DEADLINE, Place

from clonos.errors import SnapshotCorrupt
from clonos.spark.commits import Commits

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"


def count(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield key[0], ctx.state["n"]


def start(place: Place, mode: str) -> None:
    stream = place.causal(SCHEMA).groupBy("k").process(count, SCHEMA, name="count", parallelism=2)
    place.start(stream, mode)


def lose_snapshots(monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
    """The driver finds that a snapshot at the end of these epochs is gone."""
    real = Commits.final_snapshots

    def final_snapshots(self: Commits, epoch: int) -> Any:
        if first <= epoch <= last:
            raise SnapshotCorrupt("the snapshot of an instance is gone", hint="Restore it")
        return real(self, epoch)

    monkeypatch.setattr(Commits, "final_snapshots", final_snapshots)


def test_an_instance_that_waits_for_the_record_ends_with_the_drivers_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not when the deadline of its recovery has passed."""
    lose_snapshots(monkeypatch, 0, 1 << 30)
    place.spark.conf.set("spark.clonos.recovery.deadline", "24h")
    place.write([{"k": "a", "n": 0}])
    start(place, "microbatch")
    place.await_rows(1)
    place.await_commit()
    for path in (place.checkpoint / "clonos" / "state" / "2" / "0" / "manifests").iterdir():
        path.unlink()
    place.kill()  # the process that has its state in memory
    place.write([{"k": "a", "n": 0}])
    with pytest.raises(SnapshotCorrupt, match=r"cannot record the commit of epoch \d: .* gone\. Restore it"):
        assert place.query.awaitTermination(DEADLINE), "the instance still waits"
    assert place.query.restarts == []


def test_in_real_time_no_instance_waits_for_a_record_and_the_next_epoch_has_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_snapshots(monkeypatch, 0, 0)
    place.write([{"k": "a", "n": 0}])
    start(place, "realtime")
    place.until((place.checkpoint / "clonos" / "unrecorded").exists, "epoch 0 cannot be recorded")
    place.write([{"k": "a", "n": 0}] * 4)
    place.await_rows(5)
    place.until(lambda: any((place.checkpoint / "clonos" / "epochs").glob("*")), "a later epoch is recorded")


def test_a_commit_is_recorded_as_soon_as_what_was_not_foreseen_is_over(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With eager checkpoints no row of the next epoch is seen before."""
    real, left = Commits.final_snapshots, [OSError("a disk is full")] * 3

    def final_snapshots(self: Commits, epoch: int) -> Any:
        if epoch == 0 and left:
            raise left.pop()
        return real(self, epoch)

    monkeypatch.setattr(Commits, "final_snapshots", final_snapshots)
    place.spark.conf.set("spark.clonos.recovery", "eager")
    place.write([{"k": "a", "n": 0}])
    start(place, "realtime")
    place.await_rows(1)
    place.until(lambda: not left, "a commit that is not recorded")
    place.write([{"k": "a", "n": 0}])
    place.await_rows(2)
    assert not left and place.query.restarts == []
