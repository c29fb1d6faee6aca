"""What a driver process is told, and how it and the harness talk.

A driver is a process of its own, because it will be killed: `python -m clonos.tools.demo.run_native JOB` and the
same with `run_causal`. `JOB` is a JSON file. Commands come as JSON lines on its input, events go as JSON
lines to its output:

    -> {"do": "workers"}                  <- {"event": "workers", "workers": [{"role", "instance", "pid"}]}
    -> {"do": "fault", "point": "task-sink"}   the native side; the causal side has its script
    -> {"do": "stop"}                     <- {"event": "stopped"}
                                          <- {"event": "ready"} once input would be processed
                                          <- {"event": "restart", "reason": "..."} on every restart of the
                                          query

When its input closes, the driver stops: no harness, no driver.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["ROLES", "Job", "Mode", "Pilot", "Role"]

Mode = Literal["microbatch", "realtime"]
Role = Literal["legs", "compensation", "sink"]
ROLES: tuple[Role, ...] = ("legs", "compensation", "sink")

TABLE = "compensation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One system's run of the job. All paths are absolute."""

    mode: Mode
    log: str  # the directory of the embedded source
    folder: str  # this system's own: output, checkpoint, faults, whatever it keeps
    weather: str  # address of the weather service
    instances: int = 2  # of each operator
    standby: str = "none"  # of each instance of an operator; the causal side only
    archive: bool = False  # past epochs can be looked into; the causal side only
    script: str = ""  # faults for `clonos.testing.faults`; the causal side only

    @property
    def database(self) -> str:
        return f"{self.folder}/output.sqlite"

    @property
    def checkpoint(self) -> str:
        return f"{self.folder}/checkpoint"

    @property
    def faults(self) -> str:
        return f"{self.folder}/faults"

    @property
    def marks(self) -> str:
        """Where faults that fired leave a mark."""
        return f"{self.checkpoint}/clonos/local/faults"

    @property
    def recoveries(self) -> str:
        """What the replica server has written down of them; the causal side only."""
        return f"{self.checkpoint}/clonos/local/recoveries.jsonl"

    @property
    def workers(self) -> str:
        return f"{self.folder}/workers"

    def save(self) -> Path:
        """Create the folders and write the job beside them; the file's path."""
        for each in (self.folder, self.faults, self.workers):
            Path(each).mkdir(parents=True, exist_ok=True)
        path = Path(self.folder) / "job.json"
        path.write_text(json.dumps(asdict(self), indent=1))
        return path

    @classmethod
    def load(cls, path: str) -> Job:
        return cls(**json.loads(Path(path).read_text()))


class Pilot:
    """The driver's end of the line protocol."""

    def __init__(self) -> None:
        self._commands: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lock = threading.Lock()
        self._out = sys.stdout
        sys.stdout = sys.stderr  # whatever Spark or user code prints must not get in between
        threading.Thread(target=self._read, name="pilot", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        self._commands.put({"do": "stop"})

    def say(self, event: str, **content: Any) -> None:
        """Send one event."""
        with self._lock:
            self._out.write(json.dumps({"event": event, **content}) + "\n")
            self._out.flush()

    def command(self, timeout_s: float) -> dict[str, Any] | None:
        """The next command, or `None` after `timeout_s` without one."""
        try:
            return self._commands.get(timeout=timeout_s)
        except queue.Empty:
            return None
