"""A sink of one's own in forty lines: rows as JSON into a SQLite file. docs/write-a-sink.md says what each method
promises."""

import os
import sqlite3
from collections.abc import Hashable, Mapping
from typing import Any

from clonos.sinks import StoreSink


class OwnSink(StoreSink):
    """`writeStream.to(OwnSink("/data/out.db"))`; a reader finds the rows in the table `out`."""

    parallelism = 1  # SQLite has one writer at a time
    unavailable = (sqlite3.OperationalError,)  # another process holds the lock, or the disk is full

    def __init__(self, path: str | os.PathLike[str], patience: float = 30.0) -> None:
        super().__init__(patience=patience)
        self.path = os.path.realpath(path)

    @property
    def target(self) -> Hashable:
        return "own sink", self.path

    def connect(self) -> "OwnStore":
        return OwnStore(self)


class OwnStore:
    def __init__(self, sink: OwnSink) -> None:
        self.sink = sink
        self.db = sqlite3.connect(sink.path, isolation_level=None, timeout=1, check_same_thread=False)
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS out (id TEXT PRIMARY KEY, row TEXT)")
        self.db.execute("CREATE TABLE IF NOT EXISTS record (key TEXT PRIMARY KEY, value BLOB)")

    def get(self, key: str) -> bytes | None:
        found = self.db.execute("SELECT value FROM record WHERE key = ?", [key]).fetchone()
        return found[0] if found else None

    def scan(self, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        between = "SELECT key, value FROM record WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
        return self.db.execute(between, [after, before, limit]).fetchall()

    def step(
        self,
        expected: Mapping[str, bytes | None],
        changes: Mapping[str, bytes | None],
        rows: list[tuple[Any, ...]],
        ids: list[str],
    ) -> bool:
        lines = [line.decode() for line in self.sink.as_json(rows, ids)]
        self.db.execute("BEGIN IMMEDIATE")
        with self.db:  # commits at its end; where something is raised, it takes everything back
            if any(self.get(key) != value for key, value in expected.items()):
                return False
            self.db.executemany("INSERT INTO out VALUES (?, ?)", zip(ids, lines))
            self.db.executemany("DELETE FROM record WHERE key = ?", [[key] for key in changes])
            kept = [(key, value) for key, value in changes.items() if value is not None]
            self.db.executemany("INSERT INTO record VALUES (?, ?)", kept)
        return True

    def close(self) -> None:
        self.db.close()
