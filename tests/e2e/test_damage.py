"""Struck from outside. A damaged causal log store is set aside, and what it held fetched from the other holders; what
`clonos inject` does to a query `clonos status` shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, await_quarter, await_replica, running
from modes import mostly

from clonos.storage.log_store import LogStore
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.replica import snapshot_metadata as metadata
from clonos_standby.server.damage import damage

pytestmark = pytest.mark.spark

STRUCK = (2, 0)  # node and instance
PLACE = "2/0"


def stop_a_replica(query: Any, setup: Run) -> tuple[int, int]:
    """So that it writes no more while its store is looked at; its process and epoch."""
    victim = await_replica(query, setup, *STRUCK)
    os.kill(victim["pid"], signal.SIGSTOP)
    return victim["pid"], victim["epoch"]


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_damaged_log_store_is_set_aside_and_the_others_are_asked(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    setup = Run(tmp_path, mode=mode)

    def hurt() -> bool:
        """What an operator has begun to write may still be nowhere on the disk."""
        nonlocal pid
        pid, _ = stop_a_replica(query, setup)
        if damage(setup.data / "logs" / PLACE):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    pid = 0
    with running(spark, setup) as query:
        await_quarter(query, setup)
        await_(query, setup, hurt)
        os.kill(pid, signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []
    assert len(list((setup.data / "damaged").iterdir())) == 1


def test_a_log_store_that_ends_too_early_is_noticed_and_the_others_are_asked(
    spark: Any, tmp_path: Path
) -> None:
    """Damage to the length of a record leaves a store that looks whole, and is not."""
    setup = Run(tmp_path, mode="realtime", count=1200, feed_seconds=3.0, goes_on=True)
    folder = setup.data / "logs" / PLACE

    def behind_the_snapshot(epoch: int) -> int:
        """Steps that the replica has logged, and mostly told its conduit, since its last snapshot."""
        root = f"{setup.checkpoint}/clonos/state/{PLACE}"
        manifest = SnapshotStore(root, fence=0, pending=str(tmp_path / "pending")).latest(
            epoch=epoch, final_only=False
        )
        known = metadata.candidate(manifest).log_offset if manifest is not None else 0
        with LogStore.read_only(str(folder)) as reader:
            return sum(offset >= known for offset, _ in reader.own())

    def caught() -> bool:
        nonlocal pid
        pid, epoch = stop_a_replica(query, setup)
        if behind_the_snapshot(epoch) >= 3:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    pid = 0
    with running(spark, setup) as query:
        await_quarter(query, setup)
        await_(query, setup, caught)
        for path in folder.glob("*.log"):
            os.truncate(path, min(path.stat().st_size, 200))
        os.kill(pid, signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []
    said = "".join(path.read_text() for path in (setup.data / "replicas").glob("2-0.err*"))
    assert "lacks what its conduit has seen" in said


def command(name: str, setup: Run, *arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "clonos.cli", name, str(setup.checkpoint), *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=240, check=False)


def test_a_running_query_is_seen_and_struck_from_outside(spark: Any, tmp_path: Path) -> None:
    setup = Run(tmp_path, mode="realtime", count=1200, feed_seconds=2.0, goes_on=True)
    said: dict[str, Any] = {}

    def recovered() -> bool:
        said.update(json.loads(command("status", setup, "--json").stdout))
        return bool(said["recoveries"]) and said["committed"] >= 0

    with running(spark, setup) as query:
        await_quarter(query, setup)
        done = command("inject", setup, "--kill", "--operator", "second", "--instance", "0")
        assert done.returncode == 0, done.stderr
        await_(query, setup, recovered)
        await_end(query, setup)
        assert query.restarts == []
    assert_exact(setup)
    struck = {operator["operator"]: operator for operator in said["operators"]}
    assert list(struck) == ["first", "second", "sink"]
    one = struck["second"]["instances"][0]
    assert one["state"] in ("busy", "idle") and one["resident"] > 1 << 20
    assert one["log_disk"] > 0 and one["state_disk"] > 0 and one["spill_disk"] == 0
    assert said["committed"] >= 0 and said["server"]["pid"] and said["server"]["grpc_pid"]
    death, recovery = said["recent_deaths"][-1], said["recoveries"][-1]
    assert f"process {death['pid']}: killed" in done.stdout
    for event in (death, recovery):
        assert (event["operator"], event["instance"]) == ("second", 0)
    assert list(recovery["phases"]) == ["state", "log", "function", "replay"]
    assert recovery["ms"] >= sum(recovery["phases"].values()) - 1
    assert recovery["fresh"] or recovery["since_death_ms"] >= recovery["ms"]
    assert command("status", setup).returncode == 3
