"""Every sink of ours, and the simulator's, keeps what the port of sinks promises."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis_server
from deltalake import DeltaTable
from iceberg_place import TABLE, read_table, sqlite_catalog
from kafka_broker import KafkaBroker, shown_once
from objects_place import ObjectsPlace
from redis_server import RedisServer
from s3_server import S3Server
from sink_support import execute, fresh_database

from clonos import sinks
from clonos.protocol.fence import Fence
from clonos.protocol.roles import fence_log
from clonos.protocol.roles.sink_fence import Holder, check_taking
from clonos.sim.sinks import SinkCommits
from clonos.sinks import (
    appended_file,
    call_sink,
    kafka_sink,
    kafka_writer,
    sink_wal,
    sql_log,
    sql_writer,
    store_log,
    store_writer,
)
from clonos.sinks.kafka_ids import ID_HEADER
from clonos.storage.embedded_log import read
from clonos.testing.conformance import sinks as conformance, stores
from clonos.testing.conformance.sinks import (
    COMMIT_CHECKS,
    SINK_CHECKS,
    CommitPlace,
    SinkPlace,
    Written,
    check_name,
)
from clonos.testing.conformance.stores import STORE_CHECKS

REDIS = [
    pytest.param(f"redis {version}, {mode}", marks=pytest.mark.redis)
    for version, mode in (
        (redis_server.NEW, "stream"),
        (redis_server.NEW, "upsert"),
        (redis_server.OLD, "stream"),
    )
]
OBJECTS = [pytest.param("objects", marks=pytest.mark.s3)]
KINDS = [
    "jsonl",
    "log",
    "call",
    "checkable call",
    "sqlite",
    "sqlite upsert",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("postgres upsert", marks=pytest.mark.postgres),
    pytest.param("mysql", marks=pytest.mark.mysql),
    pytest.param("mysql upsert", marks=pytest.mark.mysql),
    pytest.param("kafka", marks=pytest.mark.kafka),
    pytest.param("kafka at once", marks=pytest.mark.kafka),
    *REDIS,
    "delta",
    "iceberg",
    *OBJECTS,
]


def jsonl_place(folder: Path) -> SinkPlace:
    def visible() -> list[Written]:
        lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
        return [(row["clonos_id"], row["card"], row["n"]) for row in map(json.loads, lines)]

    return SinkPlace(lambda: sinks.JsonlSink(folder, segment_bytes=1), visible)


def log_place(folder: Path) -> SinkPlace:
    def visible() -> list[Written]:
        found = [
            json.loads(entry.payload)
            for file in folder.glob("*.log")
            for entry in read(folder, int(file.stem))
        ]
        return [(row["clonos_id"], row["card"], row["n"]) for row in found]

    return SinkPlace(lambda: sinks.LogSink(folder, 4, segment_bytes=1), visible)


def call_place(folder: Path, mode: Any) -> SinkPlace:
    arrived: list[Written] = []

    def write(rows: Sequence[Any], ids: Sequence[str]) -> None:
        arrived.extend((row_id, *row) for row_id, row in zip(ids, rows, strict=True))

    def last_written(channel: int) -> int | None:
        found = [int(row_id.rpartition("-")[2]) for row_id, _, _ in arrived]
        return max(found, default=None) if channel == conformance.CHANNEL else None

    asked = last_written if mode == "checkable" else None
    return SinkPlace(lambda: sinks.call(write, mode=mode, last_written=asked, path=folder), lambda: arrived)


def sql_place(url: str, kind: str) -> SinkPlace:
    # Each row has a key of its own, so that all of them stay to be counted.
    arguments: dict[str, Any] = {"mode": "upsert", "key": ["n", "card"]} if "upsert" in kind else {}

    def visible() -> list[Any]:
        return [tuple(row) for row in execute(url, "SELECT clonos_id, card, n FROM out")]

    return SinkPlace(lambda: sinks.sql(url, "out", **arguments), visible)


def kafka_place(broker: KafkaBroker, mode: Any) -> SinkPlace:
    topic = broker.topic()

    def visible() -> list[Written]:
        messages = shown_once(broker.read(topic))
        ids = [dict(message.headers())[ID_HEADER].decode() for message in messages]
        values = [json.loads(message.value()) for message in messages]
        return [(row_id, row["card"], row["n"]) for row_id, row in zip(ids, values, strict=True)]

    return SinkPlace(
        lambda: sinks.kafka(broker.servers, topic=topic, key="card", prefix=f"{topic}-", mode=mode), visible
    )


def redis_place(server: RedisServer, mode: Any) -> SinkPlace:
    name = server.fresh_name()
    made = {"mode": mode, "key": "n"} if mode == "upsert" else {}

    def visible() -> list[Written]:
        with closing(server.client(decode_responses=True)) as client:
            if mode == "stream":
                found = [entry for _, entry in client.xrange(name)]
            else:
                found = [client.hgetall(key) for key in client.scan_iter(f"{name}:*", _type="hash")]
        return [(row["clonos_id"], row["card"], int(row["n"])) for row in found]

    return SinkPlace(lambda: sinks.redis(server.url, f"{name}:" if made else name, **made), visible)


def delta_place(folder: Path) -> SinkPlace:
    def visible() -> list[Written]:
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        found = DeltaTable(folder).to_pyarrow_table().to_pylist()
        return [(row["clonos_id"], row["card"], row["n"]) for row in found]

    return SinkPlace(lambda: sinks.delta(folder), visible)


def iceberg_place(folder: Path) -> SinkPlace:
    catalog = sqlite_catalog(folder)

    def visible() -> list[Written]:
        return [(row["clonos_id"], row["card"], row["n"]) for row in read_table(catalog)]

    return SinkPlace(lambda: sinks.iceberg(TABLE, catalog), visible)


def objects_place(server: S3Server) -> SinkPlace:
    place = ObjectsPlace(server, "jsonl")

    def visible() -> list[Written]:
        return [(row["clonos_id"], row["card"], row["n"]) for row in place.read()]

    return SinkPlace(lambda: sinks.jsonl(**place.arguments()), visible)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> SinkPlace:
    if request.param == "jsonl":
        return jsonl_place(tmp_path / "rows")
    if request.param == "log":
        return log_place(tmp_path / "rows")
    if "call" in request.param:
        return call_place(tmp_path / "log", "checkable" if request.param != "call" else "idempotent")
    if "kafka" in request.param:
        mode = "transactions" if request.param == "kafka" else "at_once"
        return kafka_place(request.getfixturevalue("broker"), mode)
    if request.param == "delta":
        return delta_place(tmp_path / "table")
    if request.param == "iceberg":
        return iceberg_place(tmp_path)
    if request.param == "objects":
        return objects_place(request.getfixturevalue("s3"))
    if request.param.startswith("redis"):
        version, mode = request.param.removeprefix("redis ").split(", ")
        return redis_place(request.getfixturevalue("redis_of")(version), mode)
    kind: str = request.param
    return sql_place(fresh_database(kind.partition(" ")[0], request, tmp_path), kind)


@pytest.mark.parametrize("check", SINK_CHECKS, ids=check_name)
def test_a_sink(check: Callable[[SinkPlace], None], place: SinkPlace) -> None:
    check(place)


@pytest.mark.parametrize("place", [*REDIS, "delta", "iceberg", *OBJECTS], indirect=True)
@pytest.mark.parametrize("check", STORE_CHECKS, ids=check_name)
def test_a_store(
    check: Callable[[SinkPlace], None],
    place: SinkPlace,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "iceberg" in request.node.name:  # a commit of which is some dozen requests
        monkeypatch.setattr(stores, "STEPS", 5)
    check(place)


@pytest.mark.parametrize("check", COMMIT_CHECKS, ids=check_name)
def test_the_commit_record(check: Callable[[CommitPlace], None], place: SinkPlace) -> None:
    check(CommitPlace(place.sink))


class Simulated:
    """The simulator's, which has one query per world, behind the port."""

    def __init__(self) -> None:
        self.queries: dict[str, SinkCommits] = {}

    def of(self, query: str) -> SinkCommits:
        return self.queries.setdefault(query, SinkCommits())

    def raise_fence(self, query: str, fence: int) -> None:
        self.of(query).raise_fence(fence)

    def standing_fence(self, query: str) -> Fence:
        return max(self.of(query).floor, 0)

    def record_commit(self, query: str, fence: int, epoch: int, record: bytes) -> None:
        self.of(query).record_commit(fence, epoch, record)

    def last_commit(self, query: str) -> tuple[int, bytes] | None:
        return self.of(query).last_commit()


@pytest.mark.parametrize("check", COMMIT_CHECKS, ids=check_name)
def test_the_commit_record_of_the_simulator(check: Callable[[CommitPlace], None]) -> None:
    simulated = Simulated()
    check(CommitPlace(lambda: simulated))


# -- without the rules the checks fail


def equal_fence_is_admitted(patch: pytest.MonkeyPatch) -> None:
    def check(offered: Holder, standing: Holder, *, floor: int, origin: tuple[int, int]) -> None:
        check_taking(Holder(offered.fence), Holder(standing.fence), floor=floor, origin=origin)

    for module in (sink_wal, sql_log, fence_log, store_writer):
        patch.setattr(module, "check_taking", check)


def truncation_is_not_fenced(patch: pytest.MonkeyPatch) -> None:
    for module in (sink_wal, sql_log, fence_log, kafka_sink, store_log):
        patch.setattr(module, "check_driver", lambda fence, *, floor: None)


def bundles_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    for module in (call_sink, appended_file, sql_writer, kafka_writer, store_writer):
        patch.setattr(module, "check_bundle", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "found_by"),
    [
        (bundles_are_not_checked, conformance.a_bundle_that_does_not_continue_is_refused),
        (equal_fence_is_admitted, conformance.a_second_writer_under_the_same_fence_is_refused),
        (equal_fence_is_admitted, conformance.a_fence_that_was_only_raised_has_no_owner_yet),
        (truncation_is_not_fenced, conformance.a_deposed_driver_drops_nothing),
        (truncation_is_not_fenced, conformance.a_driver_that_is_deposed_in_the_middle_stops),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    found_by: Callable[[SinkPlace], None],
    place: SinkPlace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        found_by(place)
