"""OpenLineage's own classes, in Java, as a reader of events: what they do not know of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from maven_jars import fetched_once

from clonos.connector_jars import FetchFailure, resolve
from clonos.environment import find_java, jar_path

COORDINATES = "io.openlineage:openlineage-java:1.55.0"
_FOLDER = Path(__file__).resolve().parents[2] / ".build" / "openlineage-java"
_PROGRAM = Path(__file__).resolve().parent / "ReadEvents.java"
_PATIENCE_S = 240.0


def why_not() -> str | None:
    """Why they cannot be had here, or None."""
    try:
        _jars()
    except FetchFailure as failure:
        return f"OpenLineage's classes cannot be fetched: {failure}"
    return None


def _jars() -> list[str]:
    return fetched_once(
        _FOLDER, lambda java: resolve(java, jar_path(), _FOLDER / "ivy", [COORDINATES], dependencies=True)
    )


def read_events(events: Iterable[str]) -> list[str]:
    """`events` are texts of JSON, of a line each. What comes back: `read TYPE` of each, `facet NAME` of facets that
    are no part of OpenLineage, and anything else where something is wrong."""
    java = find_java("java")
    assert java is not None
    done = subprocess.run(
        [str(java), "-cp", os.pathsep.join(_jars()), str(_PROGRAM)],
        input="".join(f"{event}\n" for event in events),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
    )
    return (done.stdout + ("" if done.returncode == 0 else done.stderr)).splitlines()
