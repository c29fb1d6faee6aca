"""The self-judging job as a driver process of its own, to be killed: `python driver.py SETUP.json`.

Says in lines of JSON on stdout what happens: `{"event": "started", "pids": [JVM, Python]}`; `{"event": "trouble",
"failed_tasks": n, "restarts": n}` whenever there is more of it; and at the end `{"event": "ended", "error": ...,
"restarts": [...]}`. Ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger_job import Run
from modes import MODES

FIELDS = (
    *("mode", "count", "keys", "faults", "parallelism", "trigger", "settings", "patience", "location"),
    *("first_recovery", "second_recovery"),
)
START_SECONDS = 180.0
LOOK_SECONDS = 0.5


def main(path: str) -> None:
    import sessions

    said = json.loads(Path(path).read_text())
    session = {"master": said.pop("master"), "settings": said.pop("session")}
    setup = Run(Path(said.pop("base")), **said)
    assert setup.mode in MODES
    spark = sessions.session(**session)
    query = setup.start(spark)
    jvm = int(spark._jvm.ProcessHandle.current().pid())
    say(event="started", pids=[jvm, os.getpid()])
    threading.Thread(target=lambda: (sys.stdin.read(), query.stop()), daemon=True).start()
    error, trouble = None, (0, 0)
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            if (now := (failed_tasks(spark), len(query.restarts))) != trouble:
                trouble = now
                say(event="trouble", failed_tasks=now[0], restarts=now[1])
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    say(event="ended", error=error, restarts=query.restarts)
    spark.stop()


def say(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def failed_tasks(spark: Any) -> int:
    """Over all executors, also those that are gone."""
    said = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    return sum(int(said.apply(i).failedTasks()) for i in range(said.size()))


class Driver:
    """A driver process, seen from the test. Its temporary files go to a directory of its own."""

    def __init__(
        self,
        setup: Run,
        temporary: Path,
        master: str = "local[8,4]",
        session: Mapping[str, str] = {},
    ) -> None:
        config = setup.base / "driver.json"
        config.write_text(
            json.dumps(
                {
                    "base": str(setup.base),
                    "master": master,
                    "session": dict(session),
                    **{name: getattr(setup, name) for name in FIELDS},
                }
            )
        )
        self.pids: list[int] = []
        self.last: dict[str, Any] = {}
        self.trouble = (0, 0)  # tasks that have failed, restarts of the query
        self.log = setup.base / "driver.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **os.environ,
                    "TMPDIR": str(temporary),
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )
        self._started = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)
            if self.last["event"] == "started":
                self.pids = self.last["pids"]
                self._started.set()
            elif self.last["event"] == "trouble":
                self.trouble = self.last["failed_tasks"], self.last["restarts"]
        self._started.set()

    def await_start(self) -> Driver:
        assert self._started.wait(START_SECONDS) and self.pids, self.log.read_text()[-4000:]
        return self

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, jvm: bool = True) -> None:
        """SIGKILL, the way an operating system takes a driver: without a word."""
        for pid in self.pids if jvm else self.pids[1:]:
            os.kill(pid, signal.SIGKILL)
        self.wait(120)

    def stop(self) -> dict[str, Any]:
        """In order; what it said at the end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.wait(120)
        return self.last

    def wait(self, seconds: float) -> int:
        code = self._process.wait(seconds)
        self._reader.join(120)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return code

    def end(self) -> None:
        """Whatever state it is in."""
        if self.alive:
            for pid in [*self.pids, self._process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.wait(120)


def until(reached: Any, seconds: float, what: str) -> None:
    """Wait for something that must come about."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1])
