"""Unaligned checkpoints: what is under way on a slow channel is in them, and an instance that begins there takes it."""

from __future__ import annotations

import fcntl
import zlib
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos.protocol.fence import LOWEST_FENCE
from clonos.protocol.ids import Epoch
from clonos.storage.manifest import Manifest
from clonos.storage.snapshots import SnapshotStore
from clonos_standby.replica import snapshot_metadata

pytestmark = pytest.mark.spark

FIRST, TOTAL = 2, 3
SCHEMA = "k string, n long"
PASSED = f"{SCHEMA}, all string, seen array<string>"
OUT = f"{SCHEMA}, seen long, total long"
TRIES = 20
INTERVAL = "8s"
"""Long enough for a process to be killed between the end of a round and that of the next one."""


def total(key: Any, row: Any, ctx: Any) -> Any:
    """It changes what it is given, as a function may."""
    row.seen.append("total")
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield row.k, row.n, len(row.seen), ctx.state["total"]


class Stops:
    """At each negative number, until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, key: Any, row: Any, ctx: Any) -> Any:
        if row.n < 0:
            (self._folder / f"at{row.n}").touch()
            with open(self._folder / f"gate{row.n}") as gate:
                fcntl.flock(gate, fcntl.LOCK_SH)  # waits while the test holds it
        yield row.k, row.n, "all", ["first"]


def snapshots(place: Place, node: int, instance: int) -> list[Manifest]:
    store = SnapshotStore(
        f"{place.checkpoint}/clonos/state/{node}/{instance}", fence=LOWEST_FENCE, pending=None
    )
    names = [name for epoch in range(3) for name in store.names_of_all_attempts(Epoch(epoch))]
    found = (store.readable(name) for name in names)
    return [manifest for manifest in found if manifest is not None]


def waiting(place: Place, *, resumed: bool = False) -> set[int]:
    """The numbers in states of channels, in any checkpoint of the second operator, or in those that it began with."""
    contents = [
        snapshot_metadata.decode(each.meta, lambda channel: tuple)
        for each in snapshots(place, TOTAL, 0)
        if each.name.resumed or not resumed
    ]
    return {row[1] for content in contents for _, _, row in content.pending}


def key_of(instance: int) -> str:
    """A key whose rows go to an instance of two."""
    return next(key for each in count() if zlib.crc32((key := f"k{each}").encode()) % 2 == instance)


def test_what_comes_before_its_marker_is_in_the_checkpoint(place: Place, tmp_path: Path) -> None:
    """The rows of a slow instance come behind the marker of a fast one, and before the slow one's own. A slow machine
    may come to the next round before the process is killed: then once more."""
    place.spark.conf.set("spark.clonos.recovery", "unaligned")
    place.spark.conf.set("spark.clonos.recovery.interval", INTERVAL)
    passed = place.causal(SCHEMA).groupBy("k").process(Stops(tmp_path), PASSED, name="first", parallelism=2)
    totals = passed.groupBy("all").process(total, OUT, name="total", parallelism=1)
    place.query = place.writer(totals, "realtime").trigger(realTime="10 minutes").start()
    slow, fast = key_of(0), key_of(1)
    place.write([{"k": slow, "n": 1}, {"k": fast, "n": 2}])
    sent = [1, 2]
    place.await_rows(len(sent))

    def stopped(stop: int) -> bool:
        return (tmp_path / f"at{stop}").exists()

    def a_round_has_begun() -> bool:
        """Without the slow instance, which both have taken part in all before."""
        behind, ahead = (
            max((each.name.sequence for each in snapshots(place, FIRST, instance)), default=-1)
            for instance in range(2)
        )
        return ahead > behind

    def is_kept(stop: int) -> bool:
        return stop in waiting(place)

    for stop in range(-1, -TRIES, -1):
        with open(tmp_path / f"gate{stop}", "w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            place.write([{"k": slow, "n": stop}])
            sent.append(stop)
            place.until(partial(stopped, stop), "the slow instance")
            place.until(a_round_has_begun, "a round")
        place.until(partial(is_kept, stop), "the state of a channel")
        place.kill_until_restart(FIRST, 1)
        rows = place.await_rows(len(sent))
        if stop in waiting(place, resumed=True):
            break
    else:
        pytest.fail("no instance began with the state of a channel")
    assert sorted(row["n"] for row in rows) == sorted(sent), "each once"
    so_far = 0
    for row in rows:
        so_far += row["n"]
        assert row["total"] == so_far and row["seen"] == 2
