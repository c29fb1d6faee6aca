"""A virtual environment per peer, so that what a peer depends on never meets what the project depends on.

An environment is made once and used again; a file in it says for what it was made.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from clonos.errors import ClonosError

_MADE = "made.json"
_INSTALL_SECONDS = 1800


class Unavailable(ClonosError):
    """A peer cannot be run, or not be killed, here; the comparison goes on without it."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that is there."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"


def prepare(folder: Path, requirement: str) -> Environment:
    """The environment with `requirement` in it, made if it is not there."""
    environment, made = Environment(folder), folder / _MADE
    wanted = {"requirement": requirement, "python": sys.version.split()[0]}
    if made.exists() and json.loads(made.read_text()) == wanted:
        return environment
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [environment.python, "-m", "pip", "install", "--quiet", requirement],
    ):
        _run(command, requirement)
    made.write_text(json.dumps(wanted))
    return environment


def version(environment: Environment, package: str) -> str:
    text = f"from importlib.metadata import version; print(version({package!r}))"
    return _run([environment.python, "-c", text], package).strip()


def _run(command: list[str], what: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise Unavailable(
            f"{what} cannot be installed: {said[-1] if said else error}",
            hint="The comparison goes on without it; see that pip can reach its index, with a Python it has files for",
        ) from error
    return done.stdout
