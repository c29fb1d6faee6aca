"""What the outside sees: readers that poll an output and note when each ledger row was first there.

A row that was seen counts as seen. If it is taken back or replaced, that does not make it unseen; the other version of
it is one row more.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COLUMNS = "key, n, input_id, draw, at, prev_hash, hash"
_POLL_S = 0.002


class Reader(threading.Thread, ABC):
    """`rows` in the order in which they became visible; `seen` are the moments."""

    def __init__(self) -> None:
        super().__init__(name="reader", daemon=True)
        self.done = threading.Event()
        self.rows: list[tuple[Any, ...]] = []
        self.seen: list[float] = []

    def run(self) -> None:
        while not self.done.wait(_POLL_S):
            self._look()
        self._look()

    def _look(self) -> None:
        found = list(self.fresh())
        now = time.time()
        self.rows += found
        self.seen += [now] * len(found)

    def close(self) -> None:
        self.done.set()
        self.join()

    @abstractmethod
    def fresh(self) -> Iterable[tuple[Any, ...]]:
        """Rows that have become visible since the last look."""


class TableReader(Reader):
    """A table of an SQLite database whose row ids only ever grow."""

    def __init__(self, database: Path) -> None:
        super().__init__()
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._last = 0

    def fresh(self) -> list[tuple[Any, ...]]:
        if self._connection is None:
            if not self._database.exists():
                return []
            self._connection = sqlite3.connect(
                f"file:{self._database}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
            )
        text = f"select rowid, {COLUMNS} from out where rowid > ? order by rowid"
        try:
            found = self._connection.execute(text, (self._last,)).fetchall()
        except sqlite3.OperationalError:  # the table is not there yet, or is just being created
            return []
        if found:
            self._last = found[-1][0]
        return [row[1:] for row in found]

    def close(self) -> None:
        super().close()
        if self._connection is not None:
            self._connection.close()


class FolderReader(Reader):
    """A folder of finished files of JSON lines: a file is there whole or not at all; hidden ones are not finished."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._known: set[str] = set()

    def fresh(self) -> list[tuple[Any, ...]]:
        try:
            names = {name for name in os.listdir(self._folder) if not name.startswith((".", "_"))}
        except FileNotFoundError:
            return []
        found = []
        for name in sorted(names - self._known):
            self._known.add(name)
            lines = Path(self._folder, name).read_text().splitlines()
            found += [tuple(json.loads(line)) for line in lines]
        return found
