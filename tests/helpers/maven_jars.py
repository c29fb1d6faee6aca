"""Jars that tests fetch from Maven, once per tree."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path

from clonos.connector_jars import FetchFailure
from clonos.environment import find_java


def fetched_once(folder: Path, fetch: Callable[[Path], list[Path]]) -> list[str]:
    """What `fetch` has brought with this Java, by the first process that asked. Raises FetchFailure."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listed = folder / "jars.json"
        if listed.exists():
            paths: list[str] = json.loads(listed.read_text())
            if all(Path(path).exists() for path in paths):
                return paths
        java = find_java("java")
        if java is None:
            raise FetchFailure("no Java")
        paths = [str(path) for path in fetch(java)]
        listed.write_text(json.dumps(paths))
        return paths
