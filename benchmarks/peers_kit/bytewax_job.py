"""The ledger as a Bytewax dataflow: a source that goes on where its snapshot was taken, and a table as the sink.

Bytewax snapshots source positions and state every epoch, and after a restart goes on from the last epoch of which it
has all snapshots. What the sink wrote since is written again. A sink that is to stand that has to be idempotent: here a
table with the input id as its key, in which a row replaces the one before.

    python -m bytewax.run "peers_kit.bytewax_job:flow('LOG', 'DATABASE')" -r RECOVERY -s 1 -b 0
"""

from __future__ import annotations

import json
import random
import sqlite3
import time

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from clonos.storage.embedded_log import partitions_of
from clonos.testing.ledger import extend
from peers_kit.tail import START, Tail

TABLE = (
    "create table if not exists out (place integer primary key autoincrement, key, n, input_id unique, draw, at, "
    "prev_hash, hash)"
)
INSERT = (
    "insert or replace into out (key, n, input_id, draw, at, prev_hash, hash) values (?, ?, ?, ?, ?, ?, ?)"
)


class LogPartition(StatefulSourcePartition[bytes, int]):
    def __init__(self, log: str, partition: int, position: int | None) -> None:
        self._tail = Tail(log, partition, START if position is None else position)

    def next_batch(self) -> list[bytes]:
        return self._tail.next()

    def snapshot(self) -> int:
        return self._tail.position

    def close(self) -> None:
        self._tail.close()


class LogSource(FixedPartitionedSource[bytes, int]):
    def __init__(self, log: str) -> None:
        self._log = log

    def list_parts(self) -> list[str]:
        return [str(number) for number in range(partitions_of(self._log))]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> LogPartition:
        return LogPartition(self._log, int(for_part), resume_state)


class TablePartition(StatelessSinkPartition[tuple]):
    def __init__(self, database: str) -> None:
        self._connection = sqlite3.connect(database, timeout=60)
        self._connection.execute("pragma journal_mode=wal")
        self._connection.execute("pragma synchronous=normal")
        self._connection.execute(TABLE)

    def write_batch(self, items: list[tuple]) -> None:
        with self._connection:
            self._connection.executemany(INSERT, items)

    def close(self) -> None:
        self._connection.close()


class TableSink(DynamicSink[tuple]):
    """One transaction for each batch that comes."""

    def __init__(self, database: str) -> None:
        self._database = database

    def build(self, step_id: str, worker_index: int, worker_count: int) -> TablePartition:
        return TablePartition(self._database)


def parse(payload: bytes) -> tuple[str, str]:
    fields = json.loads(payload)
    return fields["k"], fields["id"]


def ledger(state: dict | None, item: tuple[str, str]) -> tuple[dict, tuple]:
    state = {} if state is None else state
    entry = extend(state, *item, random.getrandbits(63), time.time_ns() // 1000)
    return state, entry.row()


def flow(log: str, database: str) -> Dataflow:
    dataflow = Dataflow("ledger")
    records = op.map("parse", op.input("log", dataflow, LogSource(log)), parse)
    rows = op.stateful_map("ledger", op.key_on("key", records, lambda item: item[0]), ledger)
    op.output("table", op.map("row", rows, lambda item: item[1]), TableSink(database))
    return dataflow
