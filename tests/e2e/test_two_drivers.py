"""Two drivers over one checkpoint: one leads, and the other is refused before it has touched anything."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_lines import processes_of
from driver import Driver, until
from ledger_job import Run, assert_exact
from modes import mostly

from clonos.errors import AlreadyRunning, Fenced
from clonos.protocol.roles.leadership import Claim, Lease
from clonos.spark.leadership import DriverLeadership
from clonos.storage.folder import Folder, resolve
from clonos.storage.generations import Generations, Machine

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("plugin_jar")]


def untouched(checkpoint: Path) -> dict[str, bytes]:
    """What a refused start must leave alone: all that a start writes for its replicas and for operators' commands."""
    ours = checkpoint / "clonos"
    found = [*ours.glob("lines/*"), *ours.glob("generations/*"), ours / "place", ours / "query.json"]
    found += [ours / "local" / name for name in ("running.json", "holders.json", "named.json")]
    found += (ours / "local").glob("spec*")
    return {str(path): path.read_bytes() for path in found if path.exists()}


def test_a_second_driver_is_refused_and_the_first_goes_on(
    spark: Any, tmp_path: Path, temporary: Path
) -> None:
    """What the first one's replicas are replaced with afterwards is the first one's own."""
    setup = Run(tmp_path, goes_on=True)
    setup.prepare()
    stop = threading.Event()
    feeder = threading.Thread(target=setup.feed, args=(stop,))
    feeder.start()
    driver = Driver(setup, temporary)
    try:
        driver.await_start()
        until(lambda: setup.visible() >= setup.count // 4, setup.deadline, "a quarter of the output")
        before = untouched(setup.checkpoint)
        second = Run(tmp_path, first=wrong)
        with pytest.raises(AlreadyRunning, match=rf"process {driver.pids[1]} on host"):
            second.start(spark)
        assert untouched(setup.checkpoint) == before
        shown = setup.visible()
        for replica in replicas_below(driver.pids[1]):
            os.kill(replica, signal.SIGKILL)
        until(lambda: setup.visible() > shown or not driver.alive, setup.deadline, "more output")
        setup.enough.set()
        until(setup.fed.is_set, setup.deadline, "the end of the input")
        until(lambda: setup.visible() >= setup.count or not driver.alive, setup.deadline, "all rows")
        ended = driver.stop()
        assert ended["error"] is None and ended["restarts"] == []
    finally:
        stop.set()
        feeder.join()
        driver.end()
    assert_exact(setup)


def wrong(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """The second driver's function, of which nothing may ever be seen."""
    yield (key[0], 0, row.id, 0, 0, "", "the second driver's", "0")


def replicas_below(pid: int) -> list[int]:
    """The processes that serve instances, of the driver `pid`: forked by its replica server."""
    servers = [
        int(text.split()[0])
        for text in processes_of("clonos_standby.server.replica_server")
        if parent(text) == pid
    ]
    return [
        int(text.split()[0])
        for text in processes_of("clonos_standby.server.replica_server")
        if parent(text) in servers
    ]


def parent(text: str) -> int:
    try:
        stat = Path(f"/proc/{text.split()[0]}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def from_another_host(setup: Run) -> int:
    """What a driver elsewhere does that has found the lease run out: it claims the next number."""
    filesystem, root = resolve(str(setup.checkpoint))
    shelf = Generations(
        Folder(filesystem, f"{root}/clonos", tag="elsewhere"),
        Machine("another", (0, 0)),
        {"host": "elsewhere"},
    )
    number = max(claim.number for claim in shelf.claims()) + 1
    assert shelf.claim(Claim(number, "f" * 32))
    return number


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_driver_that_is_taken_over_ends_and_writes_nothing_more(
    spark: Any, tmp_path: Path, mode: str
) -> None:
    setup = Run(tmp_path, mode=mode)
    setup.prepare()
    query = setup.start(spark)
    try:
        until(lambda: setup.visible() >= setup.count // 4, setup.deadline, "some output")
        number = from_another_host(setup)
        with pytest.raises(Fenced, match=r"another driver has taken this query over: start \d+ of it"):
            query.awaitTermination(setup.deadline)
    finally:
        query.stop()
    lines = [int(path.name) for path in (setup.checkpoint / "clonos" / "lines").iterdir()]
    assert max(lines) < number
    before = untouched(setup.checkpoint)
    with pytest.raises(AlreadyRunning):
        begin_while_renewed(setup)
    assert untouched(setup.checkpoint) == before


def begin_while_renewed(setup: Run) -> None:
    """A start on this host while the driver elsewhere renews its lease."""
    filesystem, root = resolve(str(setup.checkpoint))
    shelf = Generations(
        Folder(filesystem, f"{root}/clonos", tag="elsewhere"),
        Machine("another", (0, 0)),
        {"host": "elsewhere"},
    )
    over = threading.Event()

    def renew() -> None:
        for count in range(1, 10_000):
            shelf.keep(Lease("f" * 32, count, holder="process 1 on host elsewhere"))
            if over.wait(0.5):
                return

    renewer = threading.Thread(target=renew)
    renewer.start()
    leadership = DriverLeadership(str(setup.checkpoint))
    try:
        leadership.take()
    finally:
        over.set()
        renewer.join()
        leadership.release()
