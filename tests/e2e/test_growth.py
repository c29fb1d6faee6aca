"""A query that goes on for long keeps to its size: memory, files, descriptors.

The keys are few, so what state there is has been reached early; from then on nothing may grow with epochs or records.
Two looks are compared, one after a third of the epochs and one after all of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_lines import processes_of
from ledger_job import Run, assert_exact, await_, await_end, running
from modes import MODES

from clonos_standby.server.processes import resident_bytes

pytestmark = [pytest.mark.spark, pytest.mark.soak]

EPOCHS = 100
SLACK_BYTES = 16 << 20
SLACK_DESCRIPTORS = 8


@dataclass(frozen=True)
class Size:
    """Of all processes of the servers together, and of what they keep on disk."""

    resident: int
    descriptors: int
    logs: int
    snapshots: int

    @classmethod
    def look(cls, setup: Run) -> Size:
        pids = [int(process.partition(" ")[0]) for process in processes_of(str(setup.checkpoint))]
        return cls(
            resident=sum(resident_bytes(pid) or 0 for pid in pids),
            descriptors=sum(_descriptors(pid) for pid in pids),
            logs=_bytes_below(setup.data / "logs") + _bytes_below(setup.data / "spill"),
            snapshots=_bytes_below(setup.checkpoint / "clonos" / "state"),
        )


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        return 0


def _bytes_below(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("standby", [None, "hot", "passive"])
def test_a_long_run_does_not_grow(spark: Any, tmp_path: Path, mode: str, standby: str | None) -> None:
    """Bundles go beyond the memory for them all the time."""
    settings = {"inflight.memory": "64k"} | ({"standby": standby} if standby else {})
    setup = Run(tmp_path, mode=mode, count=30_000, feed_seconds=EPOCHS * 2.0, settings=settings, deadline=600)
    with running(spark, setup) as query:
        await_(query, setup, lambda: len(setup.epochs("commits")) > EPOCHS // 3)
        early = Size.look(setup)
        await_(query, setup, lambda: len(setup.epochs("commits")) > EPOCHS)
        late = Size.look(setup)
        await_end(query, setup)
    print(early, late, sep="\n")
    assert_exact(setup)
    assert late.resident <= 1.1 * early.resident + SLACK_BYTES
    assert late.descriptors <= early.descriptors + SLACK_DESCRIPTORS
    assert late.logs <= 1.5 * early.logs + SLACK_BYTES
    assert late.snapshots <= 1.5 * early.snapshots + SLACK_BYTES
