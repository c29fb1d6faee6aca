"""A sink writer in a process of its own, which kills itself with SIGKILL at a scripted point.

    python sink_child.py SPEC

SPEC is JSON: `sink` (sql, jsonl, log, call, kafka, redis, delta, own), `arguments` of its constructor, `query`,
`fence`, `upto` (the last position to write), `bundle` (rows per bundle) and optionally `crash` {"point": name, "at":
n}: die when that point is passed for the n-th time after opening (or `"at": 0`: while opening). Content depends on the
position alone, so every run of it offers the same rows. Prints a line of JSON per event.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import own_sink
import pyarrow as pa

from clonos import sinks
from clonos.errors import ClonosError
from clonos.protocol.fence import Fence

CHANNEL = 3
NODE = 5
SCHEMA = pa.schema([("card", pa.string()), ("n", pa.int64())])


def row(position: int) -> tuple[Any, ...]:
    return (f"card \n{position % 7}", position * position)


def delta(upto: int) -> bytes:
    return b"delta up to %d" % upto


def bundle(first: int, last: int) -> dict[str, Any]:
    span = range(first, last + 1)
    return {
        "rows": [row(position) for position in span],
        "ids": [f"3-0-{position}" for position in span],
        "cursors": {CHANNEL: last},
        "deltas": [delta(last)],
    }


def make_sink(spec: dict[str, Any]) -> Any:
    arguments = dict(spec["arguments"])
    if spec["sink"] == "call":
        store = arguments.pop("store")
        if arguments.get("mode") == "checkable":
            arguments["last_written"] = LastLine(store)
        sink: Any = sinks.call(LineWriter(store, arguments.pop("die_within", None)), **arguments)
    elif spec["sink"] in ("jsonl", "log"):
        sink = (sinks.JsonlSink if spec["sink"] == "jsonl" else sinks.LogSink)(**arguments)
    elif spec["sink"] == "kafka":
        sink = sinks.kafka(arguments.pop("servers"), **arguments)
    elif spec["sink"] == "redis":
        sink = sinks.redis(**arguments)
    elif spec["sink"] == "delta":
        sink = sinks.delta(**arguments)
    elif spec["sink"].startswith("objects"):
        sink = getattr(sinks, spec["sink"].removeprefix("objects "))(**arguments)
    elif spec["sink"] == "iceberg":
        sink = sinks.iceberg(**arguments)
    elif spec["sink"] == "own":
        sink = own_sink.OwnSink(**arguments)
    else:
        sink = sinks.sql(**arguments)
    sink.validate(SCHEMA)
    return sink


class LineWriter:
    """The user's function of a callable sink: appends one line per row, and may die after some of them."""

    def __init__(self, store: str, die_within: int | None) -> None:
        self.store, self.die_within = store, die_within

    def __call__(self, rows: list[Any], ids: list[str]) -> None:
        with open(self.store, "a") as file:
            for each, row_id in zip(rows, ids, strict=True):
                file.write(json.dumps([row_id, *each]) + "\n")
                file.flush()
                if self.die_within is not None and row_id.endswith(f"-{self.die_within}"):
                    die()


class LastLine:
    def __init__(self, store: str) -> None:
        self.store = store

    def __call__(self, channel: int) -> int | None:
        assert channel == CHANNEL
        if not Path(self.store).exists():
            return None
        lines = Path(self.store).read_text().splitlines()
        return int(json.loads(lines[-1])[0].rpartition("-")[2]) if lines else None


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Crash:
    """Counts how often its point is passed, and acts at the chosen time."""

    def __init__(self, point: str, at: int, act: Callable[[], None]) -> None:
        self.point, self.at, self.act = point, at, act
        self.passed = 0
        self.opened = False

    def due(self) -> bool:
        if self.at == 0:
            return not self.opened
        self.passed += self.opened
        return self.opened and self.passed == self.at


def plant(crash: Crash) -> None:
    """Wrap the function that holds the crash point."""
    target, _, moment = crash.point.rpartition(".")
    if target == "transaction":
        from clonos.sinks.sql_writer import SqlWriter

        name = {"before": "_apply", "within": "_apply", "after": "_transact"}[moment]
        _wrap(SqlWriter, name, crash, moment == "before")
        return
    if target == "kafka":
        from clonos.sinks import kafka_transactions

        owner = kafka_transactions if moment == "within" else kafka_transactions.KafkaTransactions
        _wrap(owner, "commit", crash, moment != "after")
        return
    if target in ("append", "send"):
        from clonos.sinks.kafka_client import KafkaCluster

        _wrap(KafkaCluster, target, crash, moment == "before")
        return
    if target == "redis":
        plant_redis(crash, moment)
        return
    if target == "delta":
        plant_delta(crash, moment)
        return
    if target == "objects":
        plant_objects(crash, moment)
        return
    if target == "iceberg":
        plant_iceberg(crash, moment)
        return
    if target == "own":
        if moment == "within":
            DyingDatabase.crash = crash
            own_sink.sqlite3.connect = DyingDatabase.connect
        else:
            _wrap(own_sink.OwnStore, "step", crash, moment == "before")
        return
    import clonos.sinks.appended_file
    import clonos.sinks.sink_wal
    import clonos.sinks.wal_files

    if target == "segment":
        _wrap(clonos.sinks.wal_files.os, "replace", crash, moment == "before")
        return
    module = {"log": clonos.sinks.sink_wal, "rows": clonos.sinks.appended_file}[target]
    if moment != "half":
        _wrap(module, "write_all", crash, moment == "before")
        return
    whole = module.write_all

    def half(descriptor: int, data: bytes, offset: int) -> None:
        if crash.due():
            whole(descriptor, data[: len(data) // 2], offset)
            crash.act()
        whole(descriptor, data, offset)

    module.write_all = half


def plant_delta(crash: Crash, moment: str) -> None:
    """In the order in which a step passes them."""
    from clonos.sinks.delta_sink import DeltaStore
    from clonos.sinks.delta_table import LocalTable
    from clonos.sinks.kept_records import RecordFiles

    owner, name, before = {
        "step": (DeltaStore, "step", True),
        "rows": (LocalTable, "write_rows", False),
        "records": (RecordFiles, "write", False),
        "commit": (LocalTable, "commit", True),
        "committed": (LocalTable, "commit", False),
        "after": (DeltaStore, "step", False),
    }[moment]
    _wrap(owner, name, crash, before)


def plant_objects(crash: Crash, moment: str) -> None:
    """In the order in which a step passes them."""
    from clonos.sinks.object_place import ObjectPlace
    from clonos.sinks.object_sink import ObjectStore

    owner, name, before = {
        "step": (ObjectStore, "step", True),
        "prepared": (ObjectStore, "_prepared", False),
        "commit": (ObjectPlace, "replace", True),
        "committed": (ObjectPlace, "replace", False),
        "copied": (ObjectPlace, "copy", False),
        "after": (ObjectStore, "step", False),
    }[moment]
    _wrap(owner, name, crash, before)


def plant_iceberg(crash: Crash, moment: str) -> None:
    """In the order in which a step passes them."""
    from clonos.sinks.iceberg_sink import IcebergStore
    from clonos.sinks.iceberg_table import IcebergTable, _OneCommit
    from clonos.sinks.kept_records import RecordFiles

    owner, name, before = {
        "step": (IcebergStore, "step", True),
        "records": (RecordFiles, "write", False),
        "commit": (_OneCommit, "commit_transaction", True),
        "committed": (IcebergTable, "commit", False),
        "after": (IcebergStore, "step", False),
    }[moment]
    _wrap(owner, name, crash, before)


def plant_redis(crash: Crash, moment: str) -> None:
    """Within a step: its request has been carried out, and the answer lies in the socket, unread."""
    from redis.connection import AbstractConnection

    from clonos.sinks.redis_store import RedisStore

    if moment != "within":
        _wrap(RedisStore, "step", crash, moment == "before")
        return
    send = AbstractConnection.send_packed_command

    def sent(connection: Any, command: Any, *arguments: Any, **named: Any) -> None:
        send(connection, command, *arguments, **named)
        if b"EVALSHA" in b"".join([command] if isinstance(command, bytes) else command) and crash.due():
            select.select([connection._sock], [], [])
            crash.act()

    AbstractConnection.send_packed_command = sent


class DyingDatabase(sqlite3.Connection):
    """Acts within a transaction: rows are written, and what is to be changed with them is not yet."""

    crash: Crash

    @classmethod
    def connect(cls, *arguments: Any, **named: Any) -> sqlite3.Connection:
        return cls(*arguments, **named)

    def executemany(self, statement: str, values: Any) -> sqlite3.Cursor:
        if statement.startswith("DELETE FROM record") and self.crash.due():
            self.crash.act()
        return super().executemany(statement, values)


def _wrap(owner: Any, name: str, crash: Crash, before: bool) -> None:
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        due = crash.due()
        if due and before:
            crash.act()
        result = original(*arguments, **named)
        if due and not before:
            crash.act()
        return result

    setattr(owner, name, wrapped)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    say: Callable[..., None] = lambda **event: print(json.dumps(event), flush=True)  # noqa: E731
    act = die
    if spec.get("stop"):

        def act() -> None:
            say(event="stopping")
            os.kill(os.getpid(), signal.SIGSTOP)

    chosen = spec.get("crash")
    crash = Crash(chosen["point"], chosen["at"], act) if chosen else None
    if crash:
        plant(crash)
    writer = make_sink(spec).writer()
    if spec.get("gate"):
        say(event="ready")
        sys.stdin.readline()
    try:
        position = writer.open(query=spec["query"], node=NODE, instance=0, fence=Fence(spec["fence"]))
        if crash:
            crash.opened = True
        at = position.cursors.get(CHANNEL, 0)
        say(event="open", at=at)
        while at < spec["upto"]:
            last = min(at + spec["bundle"], spec["upto"])
            writer.write(**bundle(at + 1, last))
            at = last
            say(event="written", at=at)
    except ClonosError as error:
        say(event="error", error=type(error).__name__, message=error.message)
    finally:
        writer.close()


if __name__ == "__main__":
    main()
