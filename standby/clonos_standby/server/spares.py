"""Warm spares: replica processes that exist before they are needed.

Starting Python with Arrow and RocksDB costs more than a hundred milliseconds, pandas as much again, and a query feels
all of it as a pause when a replica is lost. So the server imports everything once, runs one small Arrow batch through
it (the first one imports pandas), and forks: a spare is ready in a few milliseconds and shares the memory of what it
has not changed. This is sound only while the server has a single thread and has not started gRPC, whose module is
imported here but whose machinery starts in the process that uses it first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import pkgutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from clonos.errors import ConfigurationError
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos_standby.server.control import ControlChannel
from clonos_standby.server.death import Output
from clonos_standby.server.log import log
from clonos_standby.server.processes import close_descriptors, die_with_parent, thread_count

START_FAILED = 70
_MODULES = (
    "numpy",
    "pyarrow",
    "pyarrow.fs",
    "pyarrow.ipc",
    "pandas",
    "rocksdict",
    "msgpack",
    "cloudpickle",
    "grpc",
)
_PACKAGES = ("clonos.protocol", "clonos.storage", "clonos.operators", "clonos.wire")
YOUNG_OBJECTS = 20_000
"""Looked through for cycles at a time. A bundle makes thousands of objects that are freed without that; to look after
every 700 of them, as Python does, takes a sixth of a replica's time."""
_SINKS = "clonos.sinks"
"""A query needs the modules of its own sinks: SQLAlchemy alone costs as much as Arrow and NumPy."""


_SELDOM: Final = {
    # Python pickles an enum's member by its value, or, in 3.11 up to 3.11.3, by its name.
    "clonos.storage.event_tables": (
        RecoveryKind.EVENT_LOG.value.encode(),
        RecoveryKind.EVENT_LOG.name.encode(),
    )
}
"""With SQLAlchemy, too: what the nodes have in them that need it."""


def quiet_libraries() -> None:
    """Settings that keep native libraries from starting threads on import; the user's own come first."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")


def warm(entry: str, nodes: Iterable[bytes]) -> list[str]:
    """Imports what replicas of these pickled nodes need; returns what could not be, which the replicas will try
    themselves."""
    pickled = b"".join(nodes)
    missing = [problem for name in _MODULES if (problem := _import(name))]
    for package in _PACKAGES:
        problem = _import(package)
        if problem:
            missing.append(problem)
            continue
        wanted = [
            name for name in _modules(package) if any(mark in pickled for mark in _SELDOM.get(name, (b"",)))
        ]
        missing += [problem for name in wanted if (problem := _import(name))]
    named = [name for name in _modules(_SINKS) if name.encode() in pickled]
    missing += [problem for name in named if (problem := _import(name))]
    problem = _import(entry.partition(":")[0])
    if problem:
        missing.append(problem)
    _dummy_batch()
    gc.collect()
    gc.freeze()
    return missing


def _modules(package: str) -> list[str]:
    inside = pkgutil.iter_modules(importlib.import_module(package).__path__, package + ".")
    return [found.name for found in inside if not found.ispkg]


def _import(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except Exception as error:  # any module may fail in any way; the replica that needs it will say so
        return f"{name}: {type(error).__name__}: {error}"
    return None


def _dummy_batch() -> None:
    with contextlib.suppress(ImportError):
        import pyarrow as pa

        batch = pa.RecordBatch.from_pydict({"number": pa.array([1, 2]), "text": pa.array(["a", None])})
        message = batch.serialize()
        pa.ipc.read_record_batch(message, batch.schema).to_pylist()


def check_forkable() -> None:
    count = thread_count()
    if count > 1:
        why = "a spare may inherit a lock that is never released"
        log("threads_before_fork", f"{count} threads run in the forking process; {why}")


@dataclass(eq=False)
class Spare:
    """A forked process: its control line and its output."""

    pid: int
    control: ControlChannel
    output: Output
    started: float = field(default_factory=time.monotonic)


def fork_spare(entry: str, spec_path: str, enroll: Callable[[], None]) -> Spare:
    """Forks a child that calls `enroll()` and runs `entry(control_socket, spec_path)`. Only ever returns in the
    parent."""
    parent = os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError:
        for fd in (reader, writer):
            os.close(fd)
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        _child(parent, theirs, writer, enroll, lambda: _resolve(entry)(theirs, spec_path))
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    theirs.close()
    os.close(writer)
    return Spare(pid, ControlChannel(ours), Output(reader))


def _resolve(entry: str) -> Callable[[socket.socket, str], object]:
    module, _, name = entry.partition(":")
    target = getattr(importlib.import_module(module), name or "main", None)
    if not callable(target):
        raise ConfigurationError(f"the replica entry point {entry!r} is not a function")
    return target  # type: ignore[no-any-return]


def _child(
    parent: int,
    control: socket.socket,
    writer: int,
    enroll: Callable[[], None],
    run: Callable[[], object],
) -> None:
    code = START_FAILED
    try:
        enroll()
        _become_child(parent, control, writer)
        run()
        code = 0
    except SystemExit as wish:
        code = wish.code if isinstance(wish.code, int) else int(wish.code is not None)
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _become_child(parent: int, control: socket.socket, writer: int) -> None:
    """Leaves everything of the parent behind: its group, signals, descriptors, output and random state."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(writer, 1)
    os.dup2(writer, 2)
    close_descriptors({0, 1, 2, control.fileno()})
    die_with_parent(parent)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    gc.enable()
    gc.set_threshold(YOUNG_OBJECTS)
