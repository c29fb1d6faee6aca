"""`clonos log replay`: the function runs in a process of its own, since it may kill it as it did before."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def replay(letter: Path, function: str, *, recorded_only: bool, deadline: float, as_json: bool) -> int:
    """Run it and say what came of it; 0 where the function got through without contradicting the recording."""
    said = _run(letter, function, recorded_only, deadline)
    if as_json:
        print(json.dumps(said, indent=2))
    else:
        _tell(said)
    return 0 if said["ended"] == "got through" else 1


def _run(letter: Path, function: str, recorded_only: bool, deadline: float) -> dict[str, Any]:
    with tempfile.TemporaryFile() as answer:
        command = [
            sys.executable,
            "-m",
            "clonos.tools.log.dead_letter_replay",
            str(letter),
            function,
            str(answer.fileno()),
        ]
        command += ["--recorded-only"] if recorded_only else []
        try:
            code = subprocess.run(
                command, pass_fds=[answer.fileno()], timeout=deadline, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return {"ended": "hangs", "why": f"the function did not come back within {deadline:g} s"}
        answer.seek(0)
        raw = answer.read()
    if raw:
        said: dict[str, Any] = json.loads(raw)
        return said
    if code < 0:
        return {"ended": "died", "why": f"the function killed its process: {signal.Signals(-code).name}"}
    return {"ended": "died", "why": f"the function ended its process with exit code {code}"}


def _tell(said: dict[str, Any]) -> None:
    for row in said.get("outputs", ()):
        print(f"row      {row}")
    for change in said.get("state", ()):
        print(f"state    {change['key']}: {change['before']} -> {change['after']}")
    for timer in said.get("timers", ()):
        print(f"timer    {timer}")
    for asked in said.get("live", ()):
        print(f"live     {asked}")
    print(f"{said['ended']}: {said['why']}" if "why" in said else said["ended"])
