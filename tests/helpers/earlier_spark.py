"""An earlier PySpark beside the one that is installed, fetched once per tree."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 1200.0


class NotFetched(Exception):
    """The release cannot be had here; the message is pip's."""


def folder_of(version: str) -> Path:
    """A folder with PySpark of that version, to stand first on the path. Raises NotFetched."""
    folder = ROOT / ".build" / "pyspark" / version
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{version}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_name(f"{version}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _install(version, unfinished)
            unfinished.replace(folder)
    return folder


def environment_with(version: str) -> dict[str, str]:
    """This process's environment, in which `import pyspark` gives that version. Raises NotFetched."""
    paths = [str(folder_of(version)), str(ROOT), str(ROOT / "standby"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _install(version: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run(
        [*command, f"pyspark=={version}"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    if done.returncode:
        raise NotFetched(done.stderr.strip())
