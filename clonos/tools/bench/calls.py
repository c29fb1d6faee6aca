"""Calls of the first operator's function, counted where each is made, in whatever process.

What is called more often than there were records was done again after a failure. A process that is killed has counted
what it had begun with, unlike in its metrics, which it tells once a second.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.tools.nexmark.query import Query, Run


class Calls:
    """Those of one run. Each is a byte at the end of a file, so that processes count together."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def counted(self, query: Query) -> Query:
        """The query, with calls of its first operator counted. A few microseconds a call."""
        first, *others = query.stages
        return replace(query, stages=(replace(first, fn=_counted(first.fn, str(self._file))), *others))

    def again(self, query: Query, fed: Run) -> int:
        """How many records the first operator had more than once. Of what was fed last, records may be left that no row
        waits for: then it is a few less. Standbys do everything again."""
        made = self._file.stat().st_size if self._file.exists() else 0
        needed = sum(
            given.row(event) is not None for given in query.inputs for event in fed.events(given.kind)
        )
        return max(0, made - needed)


def _counted(fn: Callable[..., Any], file: str) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, b".")
        finally:
            os.close(descriptor)
        return fn(*args)

    return call
