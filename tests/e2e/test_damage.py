"""A damaged causal log store: set aside, and what it held fetched from the other holders."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, running

pytestmark = pytest.mark.spark

STRUCK = (2, 0)  # node and instance


def flip_bytes_all_over(folder: Path) -> int:
    """Damage every file of a store that holds entries; how many.

    In several places: damage in the last record of a write-ahead log alone looks like an append that never ended.
    """
    hurt = 0
    for path in [*folder.glob("*.log"), *folder.glob("*.sst")]:
        size = path.stat().st_size
        if size > 200:
            with path.open("r+b") as file:
                for eighth in range(1, 8):
                    file.seek(size * eighth // 8)
                    found = file.read(4)
                    file.seek(size * eighth // 8)
                    file.write(bytes(byte ^ 0xFF for byte in found))
            hurt += 1
    return hurt


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
def test_a_damaged_log_store_is_set_aside_and_the_others_are_asked(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    setup = Run(tmp_path, mode=mode)
    with running(spark, setup) as query:
        await_(query, setup, lambda: setup.visible() >= setup.count // 3)
        victim = next(r for r in query.replicas() if (r["node"], r["instance"]) == STRUCK)
        os.kill(victim["pid"], signal.SIGSTOP)  # so that it writes no more while its store is damaged
        assert flip_bytes_all_over(setup.data / "logs" / "2" / "0")
        os.kill(victim["pid"], signal.SIGKILL)
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []
    if (
        mode == "microbatch"
    ):  # in real time a commit may just have emptied the store of what the damage would show in
        assert len(list((setup.data / "damaged").iterdir())) == 1
