"""A process beside the supervisor that it watches: one that needs threads, which what forks must not have.

It is started fresh, not forked, tells its address in one line on stdout, ends when its stdin does, and is started again
when it dies, on the same port: its clients try that address again. One that lives but does not answer pings,
or does not tell its address in time, because a signal has stopped it or its disk does not answer, is killed first.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clonos.protocol.roles.server_silence import ServerSilence
from clonos_standby.server.event_loop import Loop, Timer
from clonos_standby.server.log import log

_LINE_LIMIT = 4096
_LONGEST_PAUSE = 5.0
PING = b"ping\n"
PONG = b"\n"
"""What it writes on its standard output for whatever it reads on its standard input."""
SILENCE_SECONDS = 10.0
START_SECONDS = 30.0
"""In which a sidecar has to tell its address. The launcher waits twice as long for the supervisor."""


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
        self._silence = ServerSilence(SILENCE_SECONDS, 0.0)
        self._has_answered = True
        self._watch: Timer | None = None  # the next look at it

    def start(self) -> None:
        command = [sys.executable, "-P", "-m", self._module, *self._arguments]
        command += ["--parent", str(os.getpid()), "--port", str(self._last_port())]
        self._line = b""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._loop.watch(self.process.stdout.fileno(), lambda _events: self._read())
        self._watch = self._loop.later(START_SECONDS, self._kill_hung)

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
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
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
        self._loop.watch(fd, lambda _events: self._hear())
        try:
            address = json.loads(self._line.partition(b"\n")[0])["address"]
        except (ValueError, KeyError, TypeError):
            return log("sidecar_unclear", f"{self._module} said {self._line!r} instead of its address")
        self._failures = 0
        self.address = str(address)
        with contextlib.suppress(OSError):  # only a later restart would look for it
            self._port_file.write_text(self.address.rpartition(":")[2])
        self._silence = ServerSilence(SILENCE_SECONDS, time.monotonic())
        if self._watch is not None:
            self._watch.cancel()
        self._ping()
        return self._on_ready(self.address)

    # -- whether it answers ------------------------------------------------------------------------------------

    def _ping(self) -> None:
        assert self.process is not None and self.process.stdin is not None
        self._has_answered = False
        with contextlib.suppress(OSError):  # it is dead, which shows by itself, or has not read for long
            os.write(self.process.stdin.fileno(), PING)
        self._watch = self._loop.later(self._silence.step, self._look)

    def _hear(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        fd = self.process.stdout.fileno()
        if os.read(fd, _LINE_LIMIT):
            self._has_answered = True
        else:
            self._loop.forget(fd)

    def _look(self) -> None:
        if self._has_answered:
            self._silence.answered(time.monotonic())
        else:
            self._silence.unanswered(time.monotonic())
        if self._silence.is_hung:
            self._kill_hung()
        else:
            self._ping()

    def _kill_hung(self) -> None:
        """The next call of `check` finds it dead."""
        assert self.process is not None
        self._watch = None
        log("sidecar_hung", f"{self._module} (process {self.process.pid}) does not answer; it is replaced")
        self.process.kill()
