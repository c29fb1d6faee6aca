"""A process beside the supervisor that it watches: one that needs threads, which what forks must not have.

It is started fresh, not forked, tells its address in one line on stdout, ends when its stdin does, and is started again
when it dies, on the same port: whoever has been told that address tries again.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from clonos_standby.server.event_loop import Loop, Timer
from clonos_standby.server.log import log

_LINE_LIMIT = 4096
_LONGEST_PAUSE = 5.0


class Sidecar:
    """Keeps `python -m MODULE --port N` with further arguments running; N is 0 or the port it had."""

    def __init__(
        self,
        loop: Loop,
        module: str,
        arguments: Sequence[str],
        port_file: Path,
        on_ready: Callable[[str], None],
        *,
        port: int = 0,
    ) -> None:
        self.address: str | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._loop = loop
        self._module = module
        self._arguments = list(arguments)
        self._first_port = port
        self._on_ready = on_ready
        self._line = b""
        self._failures = 0
        self._port_file = port_file
        self._retry: Timer | None = None
        self._closed = False

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", self._module, *self._arguments]
        command += ["--parent", str(os.getpid()), "--port", str(self._last_port())]
        self._line = b""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._loop.watch(self.process.stdout.fileno(), lambda _events: self._read())

    def check(self) -> None:
        """To be called when some child has died."""
        if self.process is None or self.process.poll() is None or self._closed:
            return
        code = self.process.returncode
        self._failures += 1
        pause = min(0.05 * 2**self._failures, _LONGEST_PAUSE)
        log("sidecar_ended", f"{self._module} ended with status {code}; starting it again in {pause:.1f} s")
        self._forget()
        self._retry = self._loop.later(pause, self.start)

    def close(self) -> None:
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        process = self.process
        if process is None:
            return
        process.kill()  # it only reads
        self._forget()
        process.wait()

    def _forget(self) -> None:
        process = self.process
        assert process is not None and process.stdout is not None and process.stdin is not None
        self._loop.forget(process.stdout.fileno())
        process.stdout.close()
        with contextlib.suppress(OSError):
            process.stdin.close()
        self.process = None

    def _last_port(self) -> int:
        try:
            return int(self._port_file.read_text())
        except (OSError, ValueError):
            return self._first_port

    def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        fd = self.process.stdout.fileno()
        data = os.read(fd, _LINE_LIMIT)
        self._line += data
        if not data or len(self._line) > _LINE_LIMIT:
            return self._loop.forget(fd)
        if b"\n" not in self._line:
            return None
        self._loop.forget(fd)
        try:
            address = json.loads(self._line.partition(b"\n")[0])["address"]
        except (ValueError, KeyError, TypeError):
            return log("sidecar_unclear", f"{self._module} said {self._line!r} instead of its address")
        self._failures = 0
        self.address = str(address)
        with contextlib.suppress(OSError):  # only a later restart would look for it
            self._port_file.write_text(self.address.rpartition(":")[2])
        return self._on_ready(self.address)
