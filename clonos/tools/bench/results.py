"""The file of results: one JSON object per line and run, appended when the run is over, so that a bench can be resumed.

A line says which version of the format it has, which cell and which repeat it is of, on what it ran, and every figure;
of a run that failed, `error` says why, and it is tried again another time. The samples behind the figures are in
`samples/` beside it: arrays `at` and `latency_ms`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from clonos._version import __version__
from clonos.errors import InputError
from clonos.json_text import parsed_json
from clonos.tools.bench.cell import Cell
from clonos.tools.bench.metrics import Samples

VERSION = 2

Line: TypeAlias = dict[str, Any]


class Results:
    """The results in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self.path = self._folder / "results.jsonl"

    def lines(self) -> Iterator[Line]:
        """Everything there is; a line that was not finished does not count."""
        if not self.path.exists():
            return
        text = self.path.read_text()
        for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
            try:
                found = parsed_json(line)
                version = found["version"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"line {number} of {self.path} is not a result: {error}") from error
            if version != VERSION:
                raise InputError(
                    f"line {number} of {self.path} has version {version}; this is version {VERSION}",
                    hint="Begin in another folder",
                )
            yield found

    def known(self) -> dict[tuple[str, int], Line]:
        """The results by cell and repeat."""
        return {(line["name"], line["repeat"]): line for line in self.lines() if "error" not in line}

    def add(self, cell: Cell, repeat: int, figures: Line, samples: Samples) -> Line:
        """One more result; the line."""
        folder = self._folder / "samples"
        folder.mkdir(exist_ok=True)
        name = f"{cell.name.replace(' ', '-').replace('/', '-')}-{repeat}.npz"
        np.savez_compressed(folder / name, at=samples.at, latency_ms=samples.latency_ms)
        return self._append(cell, repeat, {"samples": f"samples/{name}", **figures})

    def fail(self, cell: Cell, repeat: int, error: Exception) -> Line:
        """A run that could not be."""
        return self._append(cell, repeat, {"error": f"{type(error).__name__}: {error}"})

    def _append(self, cell: Cell, repeat: int, what: Line) -> Line:
        self._cut_torn_line()
        head = {"version": VERSION, "name": cell.name, "repeat": repeat, "cell": cell.to_json()}
        line = {**head, "machine": machine(), **what}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return line

    def _cut_torn_line(self) -> None:
        if self.path.exists():
            data = self.path.read_bytes()
            os.truncate(self.path, data.rfind(b"\n") + 1)


def machine() -> dict[str, Any]:
    """On what it runs."""
    import pyspark

    return {
        "clonos": __version__,
        "spark": pyspark.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    """Its name, where Linux says it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
