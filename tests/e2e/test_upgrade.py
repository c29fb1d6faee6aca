"""A job that is upgraded and rolled back while replicas are killed: exact by the ledger, across versions."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_job import BUCKETS, Run, assert_exact, await_, first
from modes import mostly

from clonos.sources.log_writer import LogWriter
from clonos.spark.checkpoint import Checkpoint
from clonos.testing.ledger import extend, micros

pytestmark = pytest.mark.spark

STEP = 40  # inputs at a time
NODE = 2  # of the first operator


def second_version(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Keeps the ledger in a place of its own, and draws differently."""
    chain = ctx.state.setdefault("chain", {})
    entry = extend(chain, key[0], row.id, ctx.random.getrandbits(40), micros(ctx.now()))
    yield (*entry.row(), str(int(row.id) % BUCKETS))


def into_chain(state: dict[str, Any], version: str) -> dict[str, Any]:
    assert version == "1"
    assert "chain" not in state, "migrated twice"
    return {"chain": state}


def out_of_chain(state: dict[str, Any], version: str) -> dict[str, Any]:
    assert version == "2"
    chain: dict[str, Any] = state["chain"]
    return chain


def feed(setup: Run) -> None:
    """A step more of input."""
    with LogWriter(setup.source, 2) as writer:
        setup.count += STEP
        setup.append(writer, setup.count)


def kill_one(query: Any, rng: random.Random) -> None:
    """SIGKILL of a replica, if there is one at this moment."""
    pids = [replica["pid"] for replica in query.replicas()]
    if pids:
        os.kill(rng.choice(pids), signal.SIGKILL)


def run_under_kills(spark: Any, setup: Run, rng: random.Random, version: str) -> None:
    """Start, feed and kill until the wanted version has run an epoch; then stop without waiting for a commit."""
    query = setup.start(spark)
    try:
        checkpoint = Checkpoint(str(setup.checkpoint))
        while True:
            feed(setup)
            await_(query, setup, lambda: setup.visible() >= setup.count - STEP // 2)
            kill_one(query, rng)
            await_(query, setup, lambda: setup.visible() >= setup.count)
            entries = checkpoint.history().schedule(NODE).entries
            if entries[-1][1] == version and checkpoint.committed() >= entries[-1][0]:
                break
        feed(setup)
        await_(query, setup, lambda: setup.visible() >= setup.count - STEP // 2)
    finally:
        query.stop()


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_upgraded_migrated_and_rolled_back_under_kills(spark: Any, tmp_path: Path, mode: str) -> None:
    rng = random.Random(mode)
    setup = Run(tmp_path, mode=mode, count=0)
    setup.prepare()
    run_under_kills(spark, setup, rng, "1")
    setup.first = second_version
    setup.upgrade = {"version": "2", "previous": {"1": first}, "migrate": into_chain}
    run_under_kills(spark, setup, rng, "2")
    setup.first = first
    setup.upgrade = {"version": "1", "previous": {"2": second_version}, "migrate": out_of_chain}
    run_under_kills(spark, setup, rng, "1")
    query = setup.start(spark)
    try:
        await_(query, setup, lambda: setup.visible() >= setup.count)
    finally:
        query.stop()
    assert_exact(setup)
    versions = [version for _, version in Checkpoint(str(setup.checkpoint)).history().schedule(NODE).entries]
    assert versions == ["1", "2", "1"]
