"""The systems that are compared: how each is installed, started, struck and stopped, and where its output can be seen.

What is struck is one process that runs the user's function, by SIGKILL. What restarts it is what the system has for
that: Flink its job manager, Clonos its conduit; Bytewax leaves it to a supervisor, which here starts the processes
again at once.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clonos._version import __version__
from peers_kit import environment, processes
from peers_kit.environment import Environment, Unavailable
from peers_kit.feed import PARTITIONS
from peers_kit.visible import FolderReader, Reader, TableReader

_HERE = Path(__file__).resolve().parent
_PATH = f"{_HERE.parents[1]}:{_HERE.parent}"
_WORKER = "pyflink.fn_execution.beam.beam_boot"


class Side(ABC):
    """One run of one system. `folder` is its own; what it says goes into `words` there."""

    def __init__(self, folder: Path, log: str, interval: float) -> None:
        self.folder, self.log, self.interval = folder, log, interval
        self.words = folder / "words"
        self._running: list[subprocess.Popen[str]] = []

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def reader(self) -> Reader: ...

    @abstractmethod
    def kill(self) -> float:
        """Kill a process that runs the function; when that was."""

    def trouble(self) -> str | None:
        """The last thing it said, if it has ended."""
        if all(process.poll() is None for process in self._running):
            return None
        return (
            "\n".join(self.words.read_text(errors="replace").splitlines()[-5:]) or "it ended without a word"
        )

    def close(self) -> None:
        for process in self._running:
            processes.end(process)
        self._running.clear()

    def _launch(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        process = processes.launch(list(command), self.words, PYTHONPATH=_PATH, **variables)
        self._running.append(process)
        return process


class ClonosSide(Side):
    """`mode` is that of the query."""

    def __init__(self, folder: Path, log: str, interval: float, mode: str) -> None:
        super().__init__(folder, log, interval)
        self._mode = mode

    def start(self) -> None:
        self._launch(sys.executable, "-m", "peers_kit.clonos_job", self.log, str(self.folder), self._mode)

    def reader(self) -> Reader:
        return TableReader(self.folder / "out.db")

    def kill(self) -> float:
        (job,) = self._running
        assert job.stdin is not None and job.stdout is not None
        job.stdin.write("kill\n")
        job.stdin.flush()
        answer = job.stdout.readline()
        if not answer:
            raise Unavailable(f"nothing of Clonos could be killed: {self.trouble()}")
        return float(answer)


class FlinkSide(Side):
    def __init__(self, folder: Path, log: str, interval: float, made: Environment) -> None:
        super().__init__(folder, log, interval)
        self._python = made.python

    def start(self) -> None:
        milliseconds = str(round(self.interval * 1000))
        command = (self._python, "-m", "peers_kit.flink_job", self.log, str(self.folder), milliseconds)
        # Not in the client's process, as a local cluster would have it: Flink is not run that way in production.
        self._launch(
            *command, _python_worker_execution_mode="process", FLINK_LOG_DIR=str(self.folder / "logs")
        )

    def reader(self) -> Reader:
        return FolderReader(self.folder / "out")

    def kill(self) -> float:
        (job,) = self._running
        workers = [pid for pid, command in processes.tree(job.pid).items() if _WORKER in command]
        if not workers:
            raise Unavailable(f"nothing of Flink could be killed: no process runs {_WORKER}")
        at = time.time()
        processes.kill(random.choice(workers))
        return at


class BytewaxSide(Side):
    def __init__(self, folder: Path, log: str, interval: float, made: Environment) -> None:
        super().__init__(folder, log, interval)
        self._python = made.python
        recovery = str(folder / "recovery")
        Path(recovery).mkdir()
        subprocess.run([made.python, "-m", "bytewax.recovery", recovery, str(PARTITIONS)], check=True)
        job = f"peers_kit.bytewax_job:flow({log!r}, {str(folder / 'out.db')!r})"
        options = ["-r", recovery, "-s", f"{interval:g}", "-b", "0"]
        self._command = [made.python, "-m", "bytewax.run", job, *options]

    def start(self) -> None:
        addresses = ";".join(f"localhost:{port}" for port in _free_ports(PARTITIONS))
        for number in range(PARTITIONS):
            self._launch(*self._command, "-i", str(number), "-a", addresses)

    def reader(self) -> Reader:
        return TableReader(self.folder / "out.db")

    def kill(self) -> float:
        """The others cannot go on without it: all are started again."""
        at = time.time()
        processes.kill(random.choice(self._running).pid)
        for process in self._running:
            processes.kill(process.pid)
        self.close()
        self.start()
        return at


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass(frozen=True)
class Peer:
    """A system, ready to run: what it is called and which version, and how to make a run of it."""

    name: str
    version: str
    make: Callable[[Path, str, float], Side]


def clonos(_: Path) -> list[Peer]:
    return [
        Peer(f"Clonos, {text}", __version__, lambda *given, mode=mode: ClonosSide(*given, mode))
        for mode, text in (("realtime", "real time"), ("microbatch", "micro-batch"))
    ]


def flink(base: Path) -> list[Peer]:
    made = environment.prepare(base / "flink", "apache-flink")
    _add_source(made)
    said = environment.version(made, "apache-flink")
    return [Peer("PyFlink", said, lambda *given: FlinkSide(*given, made))]


def bytewax(base: Path) -> list[Peer]:
    made = environment.prepare(base / "bytewax", "bytewax")
    said = environment.version(made, "bytewax")
    return [Peer("Bytewax", said, lambda *given: BytewaxSide(*given, made))]


KNOWN: dict[str, Callable[[Path], list[Peer]]] = {"flink": flink, "bytewax": bytewax, "clonos": clonos}


def _add_source(made: Environment) -> None:
    """Compile the source that follows the log into a jar among Flink's own."""
    jars, classes = made.packages / "pyflink" / "lib", made.folder / "classes"
    command = [
        "javac",
        "--release",
        "17",
        "-cp",
        f"{jars}/*",
        "-d",
        str(classes),
        str(_HERE / "LogSource.java"),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(
            f"Flink's source cannot be compiled: {getattr(error, 'stderr', None) or error}",
            hint="It needs a JDK 17 or later with javac on the PATH",
        ) from error
    with zipfile.ZipFile(jars / "peers-source.jar", "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            jar.write(path, path.relative_to(classes))
