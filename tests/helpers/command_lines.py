"""Processes of this host by what their command lines name."""

from __future__ import annotations

import os
from pathlib import Path


def processes_of(text: str) -> list[str]:
    """Processes, this one aside, whose command line names something."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text in command and state != "Z":
            found.append(f"{entry.name} {command}")
    return found
