"""The process that has started a replica server waits for its end, and notices when it lives but does not work.

A ping is a line on the server's standard input, which it answers on its standard output: neither takes a connection,
so a server that is short of descriptors or has many conduits waiting still answers.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable
from typing import Final

from clonos.protocol.roles.server_silence import ServerSilence

PING: Final = b"ping"
_AT_ONCE: Final = 4096


def is_hung(
    process: subprocess.Popen[bytes],
    output: int,
    deadline: float,
    is_wanted: Callable[[], bool],
    at_ping: Callable[[], None],
) -> bool:
    """Waits until the process ends or is not wanted any more (False), or has answered nothing for the deadline (True).
    `at_ping` is called with each ping.

    `output` reads its standard output, whose end comes first when it dies; whatever it writes is a sign of life.
    """
    silence = ServerSilence(deadline, time.monotonic())
    while is_wanted() and process.poll() is None:
        at_ping()
        say(process, PING)
        if readable(output, silence.step):
            if not os.read(output, _AT_ONCE):
                return False
            silence.answered(time.monotonic())
            readable(output, silence.step)  # until the next ping is due, or the server ends
        else:
            silence.unanswered(time.monotonic())
            if silence.is_hung:
                return True
    return False


def say(process: subprocess.Popen[bytes], line: bytes) -> None:
    """To its standard input. One that has died, or is just being ended, does not hear it."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(line + b"\n")
        process.stdin.flush()


def readable(fd: int, seconds: float) -> bool:
    poll = select.poll()  # unlike select.select it does not mind large descriptors
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
