"""What a query stands on fails: the sink, the disk, a snapshot. A clear error or a pause, and nothing lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import failed_tasks
from ledger_job import Run, assert_exact, await_, await_end, await_quarter, await_replica, run, running
from modes import mostly

from clonos.errors import ReplicaLost, SnapshotCorrupt, StorageUnavailable
from clonos.storage.snapshots import SnapshotStore

pytestmark = pytest.mark.spark


@contextlib.contextmanager
def sink_down(setup: Run) -> Iterator[None]:
    """The sink cannot write to the database."""
    with contextlib.closing(sqlite3.connect(setup.database, timeout=120, isolation_level=None)) as connection:
        connection.execute("begin exclusive")
        yield
        connection.execute("rollback")


@pytest.mark.parametrize(
    ("mode", "patience"),
    [("realtime", 240.0), ("microbatch", 1.0), pytest.param("realtime", 1.0, marks=pytest.mark.soak)],
)
def test_a_sink_that_is_down_for_a_while(spark: Any, tmp_path: Path, mode: str, patience: float) -> None:
    """Waited for by the sink itself, or, when that loses its patience, by trying its task again until it is back."""
    setup, failed = Run(tmp_path, mode=mode, patience=patience), failed_tasks(spark)
    setup.settings = {"replica.attempts": "2"}  # with more of them, it only takes longer until a task fails
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.visible() >= setup.count // 3)
        with sink_down(setup):
            seen = setup.visible()
            if mode == "microbatch":
                await_(query, setup, lambda: failed_tasks(spark) >= failed + 2)
            else:  # where no task fails for it
                time.sleep(3.0 if patience > 10 else 10.0)
            assert query.isActive
        assert seen < setup.count
        await_end(query, setup)
    assert_exact(setup)
    if patience > 10:
        assert not query.restarts


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 24 MiB; needs the right to mount one."""
    path = Path(tempfile.mkdtemp(prefix="ct-", dir="/tmp"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], capture_output=True, timeout=120
    )
    if mounted.returncode != 0:
        path.rmdir()
        pytest.skip("cannot mount a small file system here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True, timeout=120)
    path.rmdir()


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_disk_that_is_full_for_a_while(spark: Any, tmp_path: Path, small_disk: Path, mode: str) -> None:
    setup = Run(tmp_path, mode=mode, settings={"data": str(small_disk), "restart.limit": "1000"})
    ballast = small_disk / "ballast"
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.visible() >= setup.count // 3)
        fill(ballast)
        time.sleep(4.0)
        ballast.unlink()
        await_end(query, setup)
    assert_exact(setup)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_disk_that_stays_full(spark: Any, tmp_path: Path, small_disk: Path, mode: str) -> None:
    """The query ends and says so; with room on the disk it continues."""
    setup = Run(tmp_path, mode=mode, settings={"data": str(small_disk), "restart.limit": "2"})
    ballast = small_disk / "ballast"
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.visible() >= setup.count // 3)
        fill(ballast)
        with pytest.raises((StorageUnavailable, ReplicaLost), match="disk is full"):
            await_(query, setup, lambda: False)
    ballast.unlink()
    run(spark, setup)
    assert_exact(setup)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_snapshot_that_was_cut_off(spark: Any, tmp_path: Path, mode: str) -> None:
    """It is not believed; with the file mended the query continues."""
    setup = Run(tmp_path, mode=mode)
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.appended == setup.count and bool(table_files(setup, tmp_path)))
    victim = max(table_files(setup, tmp_path), key=size)
    good = tmp_path / "good"
    shutil.copy2(victim, good)
    with victim.open("r+b") as file:
        file.truncate(size(victim) // 2)
    with running(spark, setup) as query, pytest.raises(SnapshotCorrupt, match=victim.name):
        await_(query, setup, lambda: False)
    shutil.copy2(good, victim)
    run(spark, setup)
    assert_exact(setup)


def table_files(setup: Run, work: Path) -> list[Path]:
    """The files without which the next start cannot do: those that the last committed epoch's snapshot names.
    Files of snapshots that were begun or given up lie beside them."""
    root = setup.checkpoint / "clonos/state/2/0"
    if not setup.epochs("commits"):
        return []
    store = SnapshotStore(str(root), fence=0, pending=str(work / "pending"))
    manifest = store.final(max(setup.epochs("commits")))
    return [root / "files" / file.stored for file in manifest.files if file.stored] if manifest else []


def size(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_data_directory_that_is_removed_is_made_again(spark: Any, tmp_path: Path, mode: str) -> None:
    """What it held the sink holds, too, and the user's function is not accused of being nondeterministic."""
    setup = Run(tmp_path, mode=mode, count=300, goes_on=True)
    with running(spark, setup) as query:
        await_quarter(query, setup)
        shutil.rmtree(setup.data, ignore_errors=True)
        replica = await_replica(query, setup, 2, 0)
        os.kill(replica["pid"], signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
