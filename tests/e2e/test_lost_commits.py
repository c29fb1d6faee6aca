"""Spark's word that an epoch has committed is lost, or the checkpoint is older than the sink: right, or not at all."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, running, second
from modes import mostly

from clonos.errors import CheckpointMismatch, StorageUnavailable
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.roles.commit_records import CommitRecords
from clonos.sources.log_writer import LogWriter

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("plugin_jar")]


def records(setup: Run) -> list[CommitRecord]:
    """Those of the checkpoint, the oldest first."""
    paths = sorted((setup.checkpoint / "clonos" / "epochs").glob("*"))
    return [CommitRecord.from_bytes(path.read_bytes(), path.name) for path in paths]


def is_recorded(setup: Run) -> bool:
    """Whether everything that may be forgotten because of Spark's last commit may be gone. In micro-batch rows are
    visible before their epoch has committed: that is waited for as well."""
    kept, committed = records(setup), max(setup.epochs("commits"), default=-1)
    if setup.mode == "microbatch" and committed != max(setup.epochs("offsets")):
        return False
    return bool(kept) and kept[-1].epoch == committed


def run_to(spark: Any, setup: Run, count: int) -> None:
    """Until all of so many inputs are out, the epoch has committed, and that has been recorded."""
    setup.count = count
    with running(spark, setup) as query:
        await_end(query, setup)
        await_(query, setup, lambda: is_recorded(setup))


def lose(setup: Run, *kinds: str) -> None:
    """The last file of Spark's logs, as a power failure loses what was not synced."""
    last = max(setup.epochs("commits"))
    for kind in kinds:
        for name in (str(last), f".{last}.crc"):
            (setup.checkpoint / kind / name).unlink(missing_ok=True)


def more(setup: Run) -> Run:
    """The same job with input to come."""
    setup.fed.clear()
    setup.enough.clear()
    return setup


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_commit_that_spark_has_lost_is_written_again(spark: Any, tmp_path: Path, mode: str) -> None:
    """After its logs were truncated and its snapshots alone were kept."""
    setup = Run(tmp_path, mode=mode, count=200)
    run_to(spark, setup, 200)
    for count, kinds in ((300, ("commits",)), (400, ("commits", "offsets"))):
        last = max(setup.epochs("commits"))
        commit = (setup.checkpoint / "commits" / str(last)).read_bytes()
        lose(setup, *kinds)
        assert max(setup.epochs("commits"), default=-1) < last
        run_to(spark, more(setup), count)
        assert (setup.checkpoint / "commits" / str(last)).read_bytes() == commit
    assert_exact(setup)


@pytest.mark.parametrize("kind", ["commits", "offsets"])
def test_a_file_of_sparks_that_says_nothing_is_written_again(spark: Any, tmp_path: Path, kind: str) -> None:
    """With nothing in it, or zeros, or no file at all. Offsets that are gone without their commit, too."""
    setup = Run(tmp_path, count=100)
    run_to(spark, setup, 100)
    for count, left in ((150, b""), (200, bytes(64)), (250, None)):
        last = max(setup.epochs("commits"))
        was = {name: (setup.checkpoint / name / str(last)).read_bytes() for name in ("commits", "offsets")}
        lose(setup, kind)
        if left is not None:
            (setup.checkpoint / kind / str(last)).write_bytes(left)
        run_to(spark, more(setup), count)
        assert {name: (setup.checkpoint / name / str(last)).read_bytes() for name in was} == was
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_offsets_of_another_time_are_written_again(spark: Any, tmp_path: Path, mode: str) -> None:
    """Spark would begin where they say, and pass over what lies before."""
    setup = Run(tmp_path, mode=mode, count=100)
    run_to(spark, setup, 100)
    last = max(setup.epochs("commits"))
    path = setup.checkpoint / "offsets" / str(last)
    was = path.read_bytes()
    with LogWriter(setup.source, 2) as writer:
        setup.append(writer, 150)
    *head, positions = was.decode().split("\n")
    ends = [(setup.source / f"{number}.log").stat().st_size for number in range(2)]
    assert json.loads(positions)["positions"] != ends
    path.write_text("\n".join([*head, json.dumps({**json.loads(positions), "positions": ends})]))
    path.with_name(f".{last}.crc").unlink(missing_ok=True)
    run_to(spark, more(setup), 200)
    assert path.read_bytes() == was
    assert_exact(setup)


@pytest.mark.parametrize(("mode", "is_committed"), [("microbatch", False), ("realtime", True)])
def test_offsets_that_are_cut_off_and_not_recorded_are_refused_until_they_are_restored(
    spark: Any, tmp_path: Path, mode: str, is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the epoch has committed, or Spark has only planned it."""

    def not_now(self: CommitRecords, epoch: int, generation: int) -> CommitRecord:
        raise StorageUnavailable("not now")

    setup = Run(tmp_path, mode=mode, count=100)
    run_to(spark, setup, 100)
    recorded = records(setup)[-1].epoch
    more(setup).count = 200
    with monkeypatch.context() as patch:
        patch.setattr(CommitRecords, "record", not_now)
        with running(spark, setup) as query:
            await_end(query, setup)
    last = max(setup.epochs("commits"))
    assert recorded < last == max(setup.epochs("offsets"))
    if not is_committed:
        lose(setup, "commits")
    path = setup.checkpoint / "offsets" / str(last)
    was = path.read_bytes()
    path.write_bytes(was[:-7])
    path.with_name(f".{last}.crc").unlink(missing_ok=True)
    with pytest.raises(
        CheckpointMismatch, match=rf"epoch {last} is damaged: {path}: line \d is cut off.* Restore it"
    ):
        run_to(spark, more(setup), 300)
    path.write_bytes(was)
    run_to(spark, more(setup), 300)
    assert_exact(setup)


def test_an_epoch_whose_offsets_spark_has_lost_may_be_another_one(spark: Any, tmp_path: Path) -> None:
    """Spark does not sync them: it takes more into the epoch than those who have run it had."""
    gate = tmp_path / "gate"

    def gated(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        with gate.open() as closed:
            fcntl.flock(closed, fcntl.LOCK_SH)  # waits while the test holds it
        yield from second(key, row, ctx)

    setup = Run(tmp_path, count=100, second=gated)
    state = setup.checkpoint / "clonos" / "state"
    with gate.open("w") as closing:
        fcntl.flock(closing, fcntl.LOCK_EX)
        with running(spark, setup) as query:
            await_(query, setup, lambda: any(state.glob("*/*/*/*-final.manifest")))
    assert setup.epochs("offsets") == [0] and not setup.epochs("commits")
    gone = (setup.checkpoint / "offsets" / "0").read_bytes()
    for name in ("0", ".0.crc"):
        (setup.checkpoint / "offsets" / name).unlink(missing_ok=True)
    with LogWriter(setup.source, 2) as writer:
        setup.append(writer, 80)
    run_to(spark, more(setup), 100)
    assert (setup.checkpoint / "offsets" / "0").read_bytes() != gone
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_an_older_copy_of_the_checkpoint_is_refused_under_a_newer_sink(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    """And nothing of the sink is touched by that: with the newer checkpoint the query goes on."""
    setup = Run(tmp_path, mode=mode, count=200)
    run_to(spark, setup, 200)
    older, newer = tmp_path / "older", tmp_path / "newer"
    shutil.copytree(setup.checkpoint, older)
    then = max(setup.epochs("commits"))
    run_to(spark, more(setup), 300)
    setup.checkpoint.rename(newer)
    older.rename(setup.checkpoint)
    shown = setup.rows("*")
    now = records_of_sink(setup).epoch
    with pytest.raises(
        CheckpointMismatch,
        match=rf"Spark's log ends with epoch {then}, .* the sink has seen the commit of epoch {now}",
    ):
        run_to(spark, more(setup), 400)
    assert setup.rows("*") == shown
    shutil.rmtree(setup.checkpoint)
    newer.rename(setup.checkpoint)
    run_to(spark, more(setup), 400)
    assert_exact(setup)


def records_of_sink(setup: Run) -> CommitRecord:
    query = records(setup)[-1].query
    said = setup.sink().last_commit(query)
    assert said is not None
    return CommitRecord.from_bytes(said[1], "the sink")


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_copy_of_the_checkpoint_goes_on_where_the_sink_has_seen_no_later_commit(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    """Although starts that the copy does not know of have written to the sink."""
    setup = Run(tmp_path, mode=mode, count=200)
    run_to(spark, setup, 200)
    copy = tmp_path / "copy"
    shutil.copytree(setup.checkpoint, copy)
    for _ in range(2):
        setup.start(spark).stop()
    assert records(setup)[-1].generation > 1
    if records_of_sink(setup).epoch > max(int(path.name) for path in (copy / "commits").glob("[0-9]*")):
        pytest.skip("an empty epoch has committed meanwhile")
    shutil.rmtree(setup.checkpoint)
    copy.rename(setup.checkpoint)
    run_to(spark, more(setup), 300)
    assert_exact(setup)


def test_a_snapshot_that_a_commit_needs_is_missed(spark: Any, tmp_path: Path) -> None:
    """An instance that has ended an epoch does not begin from nothing because its snapshot is not found."""
    setup = Run(tmp_path, count=200)
    run_to(spark, setup, 200)
    (first, *_) = (setup.checkpoint / "clonos" / "state").glob("*/*/manifests")
    for path in first.iterdir():
        path.unlink()
    with pytest.raises(CheckpointMismatch, match=r"the snapshot .*-final\.manifest of node \d, instance \d"):
        run_to(spark, more(setup), 300)
    assert setup.visible() == 200


def test_a_sink_that_has_lost_rows_is_refused(spark: Any, tmp_path: Path) -> None:
    setup = Run(tmp_path, count=200)
    run_to(spark, setup, 100)
    shutil.copy(setup.database, tmp_path / "older.db")
    run_to(spark, more(setup), 200)
    for name in setup.base.glob("out.db*"):
        name.unlink()
    shutil.copy(tmp_path / "older.db", setup.database)
    with pytest.raises(
        CheckpointMismatch, match=r"the sink has lost output: node \d, instance 0 of it had rows"
    ):
        run_to(spark, more(setup), 300)
