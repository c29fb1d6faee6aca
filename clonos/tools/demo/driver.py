"""The harness's hold on one driver process, and the killing of it.

A driver has children (the JVM, Spark's Python daemon and workers, a replica server and replicas), some of
which leave its process group. Killing the driver means: SIGKILL to its group, as when a container is lost,
and then whatever it had started is given a few seconds to notice by itself before it is killed too.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

from clonos.errors import ClonosError
from clonos.processes import alive, descendants
from clonos.tools.demo.job import Job

__all__ = ["Driver", "DriverFailed", "System"]

System = Literal["native", "clonos"]

MODULES: dict[System, str] = {
    "native": "clonos.tools.demo.run_native",
    "clonos": "clonos.tools.demo.run_causal",
}
_GRACE_S = 10.0


def _left_after_grace(pids: list[int]) -> list[int]:
    deadline = time.monotonic() + _GRACE_S
    left = [pid for pid in pids if alive(pid)]
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [pid for pid in left if alive(pid)]
    return left


class DriverFailed(ClonosError):
    """A driver ended, or said that its query cannot go on."""


class Driver:
    """One driver process from start to end."""

    def __init__(self, system: System, job: Job) -> None:
        self.system = system
        self._log = Path(job.folder, "driver.log")
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        path = job.save()
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULES[system], str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=environment,
            )
        self._reader = threading.Thread(target=self._read, name=f"driver-{system}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # something below Python printed to our pipe
            if isinstance(event, dict):
                self._events.put(event | {"at": time.time()})
        self._events.put({"event": "gone", "at": time.time()})

    def send(self, command: str, **content: Any) -> None:
        """Send one command; a driver that is gone will be noticed by its event."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **content}) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def event(self) -> dict[str, Any] | None:
        """The next event, if there is one."""
        try:
            return self._events.get_nowait()
        except queue.Empty:
            return None

    def last_words(self) -> str:
        """The end of what the driver wrote to its log, for an error message."""
        lines = self._log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if "Error" in line or "Exception" in line] or lines
        return "\n".join(line[:300] for line in telling[-5:])

    def kill(self) -> float:
        """SIGKILL, and wait until nothing of it is left; when it fell, in seconds since 1970."""
        below = descendants(self._process.pid)
        self._signal_group(signal.SIGKILL)
        fell = time.time()
        self._process.wait()
        self._wait_for(below)
        self._close()
        return fell

    def stop(self, timeout_s: float = 30) -> None:
        """Stop in good order; kill what does not."""
        if self._process.poll() is None:
            below = descendants(self._process.pid)
            self.send("stop")
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise DriverFailed(
                    f"the {self.system} driver did not stop in {timeout_s:.0f} s", hint=self.last_words()
                ) from None
            self._wait_for(below)
        self._close()

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _wait_for(self, pids: list[int]) -> None:
        """Until none of these processes is left; what does not go by itself is killed."""
        left = _left_after_grace(pids)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _left_after_grace(left)

    def _close(self) -> None:
        self._reader.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
