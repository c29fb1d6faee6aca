"""An archive is asked in a process of its own: a command repeats functions with the hash seed of replicas, and what
they do to their modules, or print, stays there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from clonos.environment import repeating_environment
from clonos.storage.archive_keys import VARIABLE
from clonos.storage.working_folders import remove_left

_LOOK_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has said."""

    code: int
    text: str
    complaint: str  # its last line on the standard error


class NotAnswered(Exception):
    """It has taken too long, or is not wanted any more."""


def ask(
    arguments: Sequence[str],
    *,
    patience: float | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
    key_file: str = "",
) -> Answer:
    """What `clonos` with these arguments says, with the modules that this process can import. Raises NotAnswered after
    `patience` seconds, or when it is not wanted any more. `key_file` has keys of the archive; unless said, the file
    that this process is told of."""
    is_given_up = False
    deadline = None if patience is None else time.monotonic() + patience
    with subprocess.Popen(
        [sys.executable, "-m", "clonos.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=repeating_environment() | ({VARIABLE: key_file} if key_file else {}),
    ) as process:
        while True:
            try:
                text, errors = process.communicate(timeout=_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if not is_wanted() or (deadline is not None and time.monotonic() > deadline):
                    is_given_up = True
                    process.kill()
                    break
    if process.returncode == -signal.SIGKILL:
        remove_left()  # what it had in the clear
    if is_given_up:
        raise NotAnswered
    said = errors.strip().splitlines()
    return Answer(process.returncode, text, said[-1].removeprefix("clonos: ") if said else "")
