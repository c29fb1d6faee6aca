"""Minutes of random losses on a standalone cluster of two hosts, and the outside judged at the end.

Whatever a query consists of is killed or stopped, by seed: primaries and standbys, both of an instance at once, the
replica server of the driver's host and that of a replica service on the other one, the service itself (a named one, or
those of executors), the network between the two, executors, and the driver, which is followed by another one over the
same checkpoint. The output has to be exact, and with causal logging no Spark task fails and no query starts again for
the loss of replicas, of whichever kind.

    CLONOS_SOAK_MINUTES=3 CLONOS_SOAK_SEED=7 make soak ARGS="tests/e2e/test_cluster_chaos.py -s"
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos import send
from cluster import ELSEWHERE, HERE, SETTINGS, Cluster, several_hosts
from driver import Driver, until
from ledger_job import Run, assert_exact
from modes import MODES
from services import Service
from test_executors import ON_EXECUTORS, services
from test_rollbacks import MIXED, RECOVERIES, steady

from clonos.errors import ConfigurationError, NotRunning
from clonos.sources.log_writer import LogWriter
from clonos.tools.inject.plan import Action, Server, Strike, Target
from clonos.tools.inject.strike import strike
from clonos.tools.live_query import LiveNode, find
from clonos.wire.replica_client import Unreachable
from clonos.wire.strikes import Kind, NoProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.skipif(not several_hosts(), reason="this system has one loopback address"),
]

SECONDS = 60 * float(os.environ.get("CLONOS_SOAK_MINUTES", "10"))
SEED = int(os.environ.get("CLONOS_SOAK_SEED", "1"))
AT_FIRST, AT_ONCE, EVERY = 200, 3, 0.05
"""Records that are there at the beginning, and so many more every so many seconds."""

PAUSE = (0.5, 5.0)
DEADLINE, LEASE, LONGEST = 5.0, 3.0, 10.0
"""A replica that is silent counts as lost, a service that is silent does, and how long something is stopped at most."""

EXECUTOR_LONGEST = 5.0
JVM_TOO = 0.7
LEFT_OUT_SECONDS = 15.0
SETTLED_SECONDS = 180.0
TRIGGERS = {"microbatch": {"processingTime": "0 seconds"}, "realtime": {"realTime": "3 seconds"}}
NODES = (
    LiveNode(2, "first", "operator", 2),
    LiveNode(3, "second", "operator", 2),
    LiveNode(4, "sink", "sink", 1),
)
PRIMARIES = [Target(node, number) for node in NODES for number in range(node.parallelism)]
STANDBYS = [Target(one.node, one.instance, True) for one in PRIMARIES if one.node.kind == "operator"]


class Chaos:
    """A query on the cluster, and what is done to it. What is drawn depends on the seed alone."""

    def __init__(self, cluster: Cluster, setup: Run, folder: Path, temporary: Path, seed: int) -> None:
        self._cluster, self._setup, self._folder, self._temporary = cluster, setup, folder, temporary
        self._dice = random.Random(seed)
        self._open()
        self._driver = self._start_driver()
        self._trouble = (0, 0)
        self.struck = 0

    def _open(self) -> None:
        """Whatever has to be there before the driver."""
        self._service = Service(self._folder, host=ELSEWHERE, lease=LEASE)
        self._setup.settings.update(self._service.settings)

    def _start_driver(self) -> Driver:
        return Driver(self._setup, self._temporary, self._cluster.url, SETTINGS)

    def run(self, seconds: float) -> None:
        """Raises where a loss of replicas has cost more than a pause, or something does not come back."""
        self._driver.await_start()
        self._settled("the first start")
        once = self.kinds()
        left: list[Callable[[float, float], None]] = []
        over = time.monotonic() + seconds
        while time.monotonic() < over:
            left = left or self._dice.sample(once, len(once))
            time.sleep(self._dice.uniform(*PAUSE))
            chosen = left.pop()
            lasting = self._dice.choice((0.0, 0.0, self._dice.uniform(0.2, LONGEST)))
            chosen(lasting, self._dice.random())
            self.struck += 1
            self._check("the last strike")
        time.sleep(PAUSE[1])
        self._check("the last strike")

    def kinds(self) -> list[Callable[[float, float], None]]:
        """What is done once before anything is done again."""
        return [
            *[self.strike_primary] * 4,
            *[self.strike_standby] * 3,
            *[self.kill_instance] * 3,
            *[self.strike_server] * 2,
            *[self.strike_executor] * 2,
            self.kill_service,
            self.cut_off,
            self.strike_driver,
        ]

    # ------------------------------------------------------------- replicas

    def strike_primary(self, lasting: float, whom: float) -> None:
        self._inject(_kill_or_stop(lasting), PRIMARIES[int(whom * len(PRIMARIES))])

    def strike_standby(self, lasting: float, whom: float) -> None:
        self._inject(_kill_or_stop(lasting), STANDBYS[int(whom * len(STANDBYS))])

    def kill_instance(self, _lasting: float, whom: float) -> None:
        standby = STANDBYS[int(whom * len(STANDBYS))]
        for target in (Target(standby.node, standby.instance), standby):
            self._inject(Action(Kind.KILL), target)

    def strike_server(self, lasting: float, whom: float) -> None:
        servers = self.servers()
        self._inject(_kill_or_stop(lasting), servers[int(whom * len(servers))])

    def servers(self) -> tuple[Server, ...]:
        return (Server(0), Server(1, self._service.address))

    def cut_off(self, lasting: float, _whom: float) -> None:
        self._inject(Action(Kind.PARTITION, lasting or LONGEST), Server(1, self._service.address))

    def kill_service(self, lasting: float, _whom: float) -> None:
        self._say(f"service: killed, and started again after {lasting:.1f} s")
        port = int(self._service.address.rpartition(":")[2])
        self._service.kill()
        self._service.close()
        time.sleep(lasting)
        self._service = Service(self._folder, host=ELSEWHERE, lease=LEASE, port=port)

    def _inject(self, action: Action, target: Target | Server) -> None:
        """A target that has just been struck is waited for."""
        error: Exception | None = None
        patience = time.monotonic() + LEFT_OUT_SECONDS
        while time.monotonic() < patience:
            try:
                strike(find(str(self._setup.checkpoint)), Strike(0.0, action, target), self._say)
                return
            except (NoProcess, NotRunning, Unreachable, ConfigurationError) as raised:
                error = raised
                time.sleep(0.2)
        self._say(f"{action.kind.value} of {target} left out: {error}")

    # ------------------------------------------------------- more than replicas

    def strike_executor(self, lasting: float, whom: float) -> None:
        host = (HERE, ELSEWHERE)[int(whom * 2)]
        lasting = min(lasting, EXECUTOR_LONGEST)
        self._say(f"executor on {host}: {_how(lasting)}")
        _strike(self._cluster.workers[host].executors(), lasting)
        self._settled(f"the executor on {host}")

    def strike_driver(self, lasting: float, whom: float) -> None:
        jvm = whom < JVM_TOO
        self._say(f"driver: {_how(lasting)}{'' if jvm or lasting else ', its Python alone'}")
        if lasting:
            _strike(self._driver.pids, lasting)
        else:
            self._driver.kill(jvm=jvm)
            self._driver = self._start_driver().await_start()
        self._settled("the driver")

    def _settled(self, after: str) -> None:
        """Two more epochs have committed since; what that has cost is put up with."""
        last = max(self._setup.epochs("commits"), default=-1)
        until(
            lambda: max(self._setup.epochs("commits"), default=-1) >= last + 2 or not self._driver.alive,
            SETTLED_SECONDS,
            f"two epochs after {after}",
        )
        self._trouble = self._driver.trouble
        self._check(after)

    def _check(self, after: str) -> None:
        assert self._driver.alive, (after, self._driver.last)
        assert self._driver.trouble == self._trouble, (
            f"failed tasks, restarts after {after}: no more than before"
        )

    # ------------------------------------------------------------------- the end

    def finish(self) -> None:
        """All input is there: all output comes, and the driver ends in order."""
        setup = self._setup
        until(lambda: setup.visible() >= setup.count or not self._driver.alive, setup.deadline, "all rows")
        assert self._driver.stop()["error"] is None

    def close(self) -> None:
        self._driver.end()
        self._service.close()

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}; {self._setup.visible()} rows", flush=True)


def _kill_or_stop(lasting: float) -> Action:
    return Action(Kind.STOP, lasting) if lasting else Action(Kind.KILL)


def _how(lasting: float) -> str:
    return f"stopped for {lasting:.1f} s" if lasting else "killed"


def _strike(pids: list[int], lasting: float) -> None:
    send(pids, signal.SIGSTOP if lasting else signal.SIGKILL)
    time.sleep(lasting)
    send(pids, signal.SIGCONT)


class ChaosOnExecutors(Chaos):
    """The services are the executors' own: lost with them, and by themselves."""

    def _open(self) -> None:
        pass

    def _start_driver(self) -> Driver:
        return Driver(self._setup, self._temporary, self._cluster.url, {**SETTINGS, **ON_EXECUTORS})

    def kinds(self) -> list[Callable[[float, float], None]]:
        return [kind for kind in super().kinds() if kind != self.cut_off]

    def servers(self) -> tuple[Server, ...]:
        return (Server(0),)

    def kill_service(self, _lasting: float, whom: float) -> None:
        host = (HERE, ELSEWHERE)[int(whom * 2)]
        self._say(f"services on {host}: killed")
        send(services(self._cluster, host), signal.SIGKILL)

    def close(self) -> None:
        self._driver.end()


class ChaosWithoutStandbys(Chaos):
    """Of recoveries with which the query may start again for a lost replica."""

    def kinds(self) -> list[Callable[[float, float], None]]:
        return [kind for kind in super().kinds() if kind not in (self.strike_standby, self.kill_instance)]

    def _check(self, after: str) -> None:
        assert self._driver.alive, (after, self._driver.last)


@contextlib.contextmanager
def fed(setup: Run) -> Iterator[None]:
    """Records come as long as it lasts; then it is known how many there are."""
    stop = threading.Event()

    def feed() -> None:
        with LogWriter(setup.source, 2) as writer:
            while not stop.wait(EVERY):
                setup.append(writer, setup.appended + AT_ONCE)

    with LogWriter(setup.source, 2) as writer:
        setup.append(writer, AT_FIRST)
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()
        setup.count = setup.appended


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", [Chaos, ChaosOnExecutors])
@pytest.mark.parametrize("mode", MODES)
def test_minutes_of_random_losses(plugin_jar: Path, tmp_path: Path, mode: str, kind: type[Chaos]) -> None:
    settings = {"standby": "hot", "replica.deadline": f"{DEADLINE:g}s", "restart.limit": "100"}
    setup = Run(tmp_path, mode=mode, trigger=TRIGGERS[mode], settings=settings)
    is_exact_through_minutes(setup, kind)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("recovery", [*RECOVERIES, *MIXED])
def test_minutes_of_random_losses_with_another_recovery(
    plugin_jar: Path, tmp_path: Path, recovery: str
) -> None:
    setup = steady(tmp_path, recovery)
    setup.settings["replica.deadline"] = f"{DEADLINE:g}s"
    is_exact_through_minutes(setup, ChaosWithoutStandbys)


def is_exact_through_minutes(setup: Run, kind: type[Chaos]) -> None:
    setup.deadline = SECONDS + 180.0
    temporary = Path(tempfile.mkdtemp(prefix="cc-", dir="/tmp"))
    print(f"{setup.mode}, seed {SEED}, {SECONDS:g} s")
    with Cluster(setup.base / "cluster") as cluster, contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, temporary, ignore_errors=True)
        with fed(setup):
            chaos = kind(cluster, setup, setup.base / "service", temporary, SEED)
            stack.callback(chaos.close)
            chaos.run(SECONDS)
        chaos.finish()
    assert_exact(setup)
    assert chaos.struck
