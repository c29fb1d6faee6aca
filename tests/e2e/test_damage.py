"""A damaged causal log store: set aside, and what it held fetched from the other holders."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, running

from clonos.store.log_store import LogStore
from clonos.store.snapshots import SnapshotStore
from standby import metadata

pytestmark = pytest.mark.spark

STRUCK = (2, 0)  # node and instance
PLACE = "2/0"


def damage(folder: Path) -> int:
    """Flip bytes of every file of a store that holds entries; how many.

    In a write-ahead log those of the first record's checksum: damage elsewhere may look like an append that never
    ended, which is the other test.
    """
    hurt = 0
    for path in [*folder.glob("*.log"), *folder.glob("*.sst")]:
        size = path.stat().st_size
        if size > 200:
            with path.open("r+b") as file:
                for at in [0] if path.suffix == ".log" else [size * eighth // 8 for eighth in range(1, 8)]:
                    file.seek(at)
                    found = file.read(4)
                    file.seek(at)
                    file.write(bytes(byte ^ 0xFF for byte in found))
            hurt += 1
    return hurt


def stop_a_replica(query: Any) -> tuple[int, int]:
    """So that it writes no more while its store is looked at; its process and epoch."""
    victim = next(r for r in query.replicas() if (r["node"], r["instance"]) == STRUCK)
    os.kill(victim["pid"], signal.SIGSTOP)
    return victim["pid"], victim["epoch"]


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_a_damaged_log_store_is_set_aside_and_the_others_are_asked(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    setup = Run(tmp_path, mode=mode)
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.visible() >= setup.count // 3)
        pid, _ = stop_a_replica(query)
        assert damage(setup.data / "logs" / PLACE)
        os.kill(pid, signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []
    assert len(list((setup.data / "damaged").iterdir())) == 1


def test_a_log_store_that_ends_too_early_is_noticed_and_the_others_are_asked(
    spark: Any, tmp_path: Path
) -> None:
    """Damage to the length of a record leaves a store that looks whole, and is not."""
    setup = Run(tmp_path, mode="realtime", count=1200, feed_seconds=6.0)
    folder = setup.data / "logs" / PLACE

    def behind_the_snapshot(epoch: int) -> int:
        """Steps that the replica has logged, and mostly told its conduit, since its last snapshot."""
        root = f"{setup.checkpoint}/clonos/state/{PLACE}"
        manifest = SnapshotStore(root, fence=0, pending=str(tmp_path / "pending")).latest(
            epoch=epoch, final_only=False
        )
        known = metadata.log_offset(manifest.meta) if manifest is not None else 0
        with LogStore.read_only(str(folder)) as reader:
            return sum(offset >= known for offset, _ in reader.own())

    def caught() -> bool:
        nonlocal pid
        pid, epoch = stop_a_replica(query)
        if behind_the_snapshot(epoch) >= 3:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    pid = 0
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.visible() >= setup.count // 3)
        await_(query, setup, caught)
        for path in folder.glob("*.log"):
            os.truncate(path, min(path.stat().st_size, 200))
        os.kill(pid, signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []
    said = "".join(path.read_text() for path in (setup.data / "replicas").glob("2-0.err*"))
    assert "lacks what its conduit has seen" in said
