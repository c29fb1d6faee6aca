"""A Spark standalone cluster of real processes: one master, and workers on hosts of their own.

A host is an address of the loopback device: 127.0.0.1 is the driver's, 127.0.0.2 another one to Spark, and so to the
library. Workers and executors of a host are one process group; they die with the test's process (the kernel sees to
the master and the workers, and an executor ends by itself when its worker is gone).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import java_class_archive
import pyspark
from driver import until

from clonos.environment import java_home

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
CORES = 8
START_SECONDS = 180.0
_SPARK = Path(pyspark.__file__).parent
_JAVA = f"{java_class_archive.SHORT_LIVED} {java_class_archive.options()} -Xss512k"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_START = (
    "import os, sys; from clonos_standby.server.processes import die_with_parent; "
    "die_with_parent(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
)
_EXECUTOR = b"CoarseGrainedExecutorBackend"
SETTINGS = {
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.network.timeout": "60s",
}


def several_hosts() -> bool:
    """Whether this system answers at more than one loopback address, as Linux does."""
    with socket.socket() as probe:
        try:
            probe.bind((ELSEWHERE, 0))
        except OSError:
            return False
    return True


class Daemon:
    """One of Spark's own, with what it starts."""

    def __init__(self, folder: Path, name: str, host: str, arguments: list[str]) -> None:
        self.log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(_SPARK),
            "JAVA_HOME": str(java_home()),
            "SPARK_DAEMON_MEMORY": "200m",
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": host,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _START,
                    str(os.getpid()),
                    str(_SPARK / "bin" / "spark-class"),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Its first word of that kind, which is waited for."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            text = self.log.read_text(errors="replace")
            assert self._process.poll() is None, text[-4000:]
            found.extend(pattern.finditer(text))
            return bool(found)

        until(look, START_SECONDS, f"{pattern.pattern} in {self.log}")
        return found[0]

    def executors(self) -> list[int]:
        """The processes that run tasks for it."""
        return [pid for pid in children(self.pid) if _EXECUTOR in command_line(pid)]

    def kill(self) -> None:
        """Alone: what it has started is left to itself."""
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """With all that it has started. It is reaped last: until then no other process group has its number."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class Cluster:
    """Started when made; a context manager."""

    def __init__(self, folder: Path, hosts: tuple[str, ...] = (HERE, ELSEWHERE)) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._daemons: list[Daemon] = []
        try:
            self.master = self._start("master", HERE, "master.Master")
            self.url = self.master.said(_MASTER)[1]
            self.workers = {host: self.start_worker(host) for host in hosts}
            for worker in self.workers.values():
                worker.said(re.compile("Successfully registered with master"))
        except BaseException:
            self.close()
            raise

    def start_worker(self, host: str) -> Daemon:
        name = f"worker-{host}-{len(self._daemons)}"
        offer = ["--cores", str(CORES), "--memory", "1g", "--work-dir", str(self._folder / name)]
        return self._start(name, host, "worker.Worker", *offer, self.url)

    def _start(self, name: str, host: str, program: str, *arguments: str) -> Daemon:
        listen = ["--host", host, "--port", "0", "--webui-port", "0"]
        daemon = Daemon(self._folder, name, host, ["org.apache.spark.deploy." + program, *listen, *arguments])
        self._daemons.append(daemon)
        return daemon

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def executors(spark: Any) -> list[Any]:
    """What Spark's scheduler says of each executor that lives, the driver aside."""
    said = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    return [said.apply(i) for i in range(said.size()) if said.apply(i).id() != "driver"]


def command_line(pid: int) -> bytes:
    """Of a process; empty once it has ended."""
    return _read(pid, "cmdline")


def talks_over_tcp(pid: int) -> bool:
    """Whether a process has a TCP connection."""
    table = [line.split() for line in _read(pid, "net/tcp").decode().splitlines()[1:]]
    connected = {f"socket:[{fields[9]}]" for fields in table if fields[3] == "01"}
    with contextlib.suppress(OSError):
        return any(_target(entry) in connected for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """Of a process."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [one for one in numbers if _parent(one) == pid]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
