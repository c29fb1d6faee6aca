"""The conduit on real Spark, in both modes: streaming, losses, types, spilling, errors, and what stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from modes import mostly

pytest.importorskip("pyspark")

from conduit_harness import (
    OPERATOR,
    SINK,
    Rig,
    arrow_memory,
    conduit_threads,
    plugin_session,
)
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from services import Authority

from clonos.sources import LogWriter
from clonos.wire.admin_messages import ReportFailure, parse_request
from clonos.wire.tls import Tls
from clonos_standby.cluster.spec_file import SpecFile

MODES = ["microbatch", "realtime"]
NUMBER = "cast(cast(value as string) as int) as number"


@pytest.fixture(scope="module")
def spark(plugin_jar: Path) -> SparkSession:
    return plugin_session(plugin_jar)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "log", 2) as writer:
        yield writer


def nothing_is_left(spark: SparkSession, folder: Path) -> bool:
    end = time.monotonic() + 120
    while conduit_threads(spark) or arrow_memory(spark):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    spill = folder / "spill"
    return not spilled_bytes(spark) and (not spill.exists() or not any(spill.iterdir()))


@pytest.mark.parametrize("mode", MODES)
def test_rows_pass_once_and_in_order_while_replicas_die(
    spark: SparkSession, tmp_path: Path, log: LogWriter, mode: str
) -> None:
    died: set[tuple[int, int, int]] = set()

    def script(node: int, instance: int, attempt: int, bundles: int) -> str | None:
        who = (node, instance, bundles)
        if bundles in (3, 7, 12, 13) and who not in died:
            died.add(who)
            return {3: "die", 7: "die_after", 12: "retryable", 13: "die"}[bundles]
        return None

    rig = Rig(spark, tmp_path, mode)
    rig.start(tmp_path / "log", [NUMBER], script=script, checkpoint_every=5, realtime="3 seconds")
    for number in range(400):
        log.append(number % 2, b"%d" % number)
        time.sleep(0.004)
    rig.wait(lambda: len(rig.rows) >= 400)
    log.append_many(0, [b"%d" % number for number in range(400, 30_000)])
    rig.wait(lambda: len(rig.rows) >= 30_000)
    rig.wait(lambda: len(rig.committed()) > 0)
    rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(30_000))
    assert rig.replicas.violations == []
    assert len({who[:2] for who in died}) == 4
    for channel in {row["_clonos_channel"] for row in rig.rows}:
        positions = [row["_clonos_position"] for row in rig.rows if row["_clonos_channel"] == channel]
        assert sorted(positions) == list(range(1, len(positions) + 1))
    assert nothing_is_left(spark, tmp_path)


@contextlib.contextmanager
def gate(folder: Path, own: Tls, target: str) -> Iterator[str]:
    """TLS in front of a socket; its address."""
    spec = folder / "spec.msgpack"
    SpecFile(spec, {"version": 1, "token": "secret", "tls": own.to_dict()}).write()
    command = [sys.executable, "-m", "clonos_standby.server.gate", "--spec", str(spec), "--to", target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield "tls:" + json.loads(process.stdout.readline())["address"]
        process.communicate()


def test_rows_pass_over_tls_while_replicas_die(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    died: set[tuple[int, int, int]] = set()

    def script(node: int, instance: int, attempt: int, bundles: int) -> str | None:
        who = (node, instance, bundles)
        if bundles in (3, 7) and who not in died:
            died.add(who)
            return "die"
        return None

    tls = Authority(tmp_path / "tls").issue("host")
    with gate(tmp_path, tls, str(tmp_path / "s")) as address:
        rig = Rig(spark, tmp_path, "microbatch", servers=[{"far": address}], tls=tls.to_dict())
        wide = "rpad(cast(value as string), 3000, 'x') as wide"
        rig.start(tmp_path / "log", [NUMBER, wide], script=script, checkpoint_every=5)
        log.append_many(0, [b"%d" % number for number in range(6_000)])
        rig.wait(lambda: len(rig.rows) >= 6_000)
        rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(6_000))
    assert {len(row["wide"]) for row in rig.rows} == {3000}
    assert rig.replicas.violations == [] and died
    assert nothing_is_left(spark, tmp_path)


@pytest.mark.parametrize("wrong", ["stranger", "other host", "no TLS", "silent"])
def test_a_peer_that_is_not_what_it_should_be_is_never_told_anything(
    spark: SparkSession, tmp_path: Path, log: LogWriter, wrong: str
) -> None:
    authority = Authority(tmp_path / "tls")
    tls = authority.issue("host")
    peer = {
        "stranger": lambda: Authority(tmp_path / "strangers").issue("host"),
        "other host": lambda: authority.issue("other", "DNS:elsewhere", "IP:127.0.0.2"),
    }.get(wrong, lambda: tls)()
    with gate(tmp_path, peer, str(tmp_path / "s")) as address, socket.socket() as plain:
        if wrong in ("no TLS", "silent"):
            plain.bind(("127.0.0.1", 0))
            plain.listen()
            address = f"tls:127.0.0.1:{plain.getsockname()[1]}"
        if wrong == "no TLS":
            threading.Thread(target=answer_in_plain, args=(plain,), daemon=True).start()
        rig = Rig(
            spark, tmp_path, "microbatch", servers=[{"far": address}], tls=tls.to_dict(), connect_ms=1500
        )
        rig.start(tmp_path / "log", [NUMBER])
        log.append_many(0, [b"1"])
        failure = until_failed(rig)
        rig.stop()
    says = {
        "stranger": "PKIX path",
        "other host": "No subject alternative names matching IP address 127.0.0.1",
        "no TLS": "SSL message",
        "silent": "no replica was ready within 1500 ms",
    }
    assert says[wrong] in failure, failure
    assert rig.rows == [] and nothing_is_left(spark, tmp_path)


def answer_in_plain(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"220 welcome, and speak plainly\r\n")
                connection.recv(1024)


def until_failed(rig: Rig) -> str:
    end = time.monotonic() + 60
    while (failure := rig.query.exception()) is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    return str(failure)


TYPES = {
    "boolean": "{n} % 2 = 0",
    "byte": "cast({n} % 100 as byte)",
    "short": "cast({n} as short)",
    "long": "cast({n} as long) * 4294967296",
    "float": "cast({n} as float) / 3",
    "double": "if({n} % 3 = 0, cast('NaN' as double), {n} / 7)",
    "small": "cast({n} as decimal(9, 2)) / 4",
    "large": "cast('12345678901234567890.123456789012345678' as decimal(38, 18)) + {n}",
    "text": "if({n} % 4 = 0, null, concat('ünï', {n}, repeat('x', {n} % 50)))",
    "bytes": "if({n} % 5 = 0, null, cast(concat('b', {n}) as binary))",
    "day": "date_add(date'1969-12-30', {n})",
    "instant": "timestamp'1969-12-31 23:59:59.999999Z' + make_interval(0, 0, 0, 0, {n}, 0, 0.000001)",
    "local": "timestamp_ntz'2024-03-31 02:30:00.123456'",
    "span": "make_dt_interval({n}, 1, 2, 3.000004)",
    "list": "if({n} % 3 = 0, null, array({n}, null, {n} + 1))",
    "map": "map(cast({n} as string), array({n}), 'k', null)",
    "nested": "named_struct('a', {n}, 'b', named_struct('c', array(named_struct('d', {n}))), 'e', cast(null as int))",
    "empty": "cast(null as int)",
    "variant": "parse_json(concat('[', {n}, ', null]'))",
}


def columns(number: str) -> list[str]:
    """The typed columns, with an expression for `n`."""
    typed = [f"{text.replace('{n}', number)} as `{name}`" for name, text in TYPES.items()]
    return [f"{number} as n", *typed]


def test_all_types_come_back_unchanged(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    expected = spark.range(200).selectExpr(*columns("cast(id as int)"))
    rig = Rig(spark, tmp_path, "microbatch")
    rig.start(tmp_path / "log", columns("cast(cast(value as string) as int)"))
    log.append_many(1, [b"%d" % number for number in range(200)])
    rig.wait(lambda: len(rig.rows) >= 200)
    rig.stop()
    found = sorted(rig.rows, key=lambda row: row["n"])
    schema = to_arrow_schema(expected.schema, timezone="UTC")
    wanted = sorted(expected.toArrow().cast(schema).to_pylist(), key=lambda row: row["n"])
    for have, want in zip(found, wanted):
        assert str([have[name] for name in want]) == str(list(want.values()))
    assert len(found) == 200
    assert rig.replicas.violations == []
    assert nothing_is_left(spark, tmp_path)


def spilled_bytes(spark: SparkSession) -> int:
    """What lies in spill files, which have no name any more."""
    assert spark._jvm is not None
    open_files = Path(f"/proc/{spark._jvm.java.lang.ProcessHandle.current().pid()}/fd")
    found = 0
    for file in open_files.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found += file.stat().st_size if ".spill" in os.readlink(file) else 0
    return found


def test_kept_bundles_are_spilled_and_sent_again(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    spilled: list[int] = []

    def script(node: int, instance: int, attempt: int, bundles: int) -> str | None:
        if node == OPERATOR and attempt == 1 and bundles == 12:
            spilled.append(spilled_bytes(spark))
            return "die"
        return None

    rig = Rig(spark, tmp_path, "microbatch", inflight_bytes=20_000, bundle_rows=500)
    log.append_many(0, [b"%d" % number for number in range(20_000)])
    rig.start(tmp_path / "log", [NUMBER], script=script, window=4)
    rig.wait(lambda: len(rig.rows) >= 20_000)
    rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(20_000))
    assert spilled and min(spilled) > 20_000
    assert rig.replicas.violations == []
    assert nothing_is_left(spark, tmp_path)


def test_a_replica_is_reached_over_tcp(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    rig = Rig(spark, tmp_path, "microbatch", servers=[{"far": f"tcp:127.0.0.1:{port}"}])
    rig.start(tmp_path / "log", [NUMBER], port=port, script=lambda *who: "die" if who[2:] == (1, 2) else None)
    log.append_many(0, [b"%d" % number for number in range(10_000)])
    rig.wait(lambda: len(rig.rows) >= 10_000)
    rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(10_000))
    assert nothing_is_left(spark, tmp_path)


def test_a_frame_that_is_not_right_costs_the_replica(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    def script(node: int, instance: int, attempt: int, bundles: int) -> str | None:
        return {1: "garbage", 2: "misfit"}.get(attempt) if node == OPERATOR else None

    rig = Rig(spark, tmp_path, "realtime")
    rig.start(tmp_path / "log", [NUMBER], script=script, realtime="5 seconds")
    log.append_many(0, [b"%d" % number for number in range(100)])
    rig.wait(lambda: len(rig.rows) >= 100)
    rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(100))
    assert max(len(instance.fences) for instance in rig.replicas.instances.values()) == 3
    assert nothing_is_left(spark, tmp_path)


def test_an_error_that_makes_no_sense_to_repeat_fails_the_query(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    rig = Rig(spark, tmp_path, "microbatch")
    rig.start(tmp_path / "log", [NUMBER], script=lambda node, *_: "error" if node == OPERATOR else None)
    log.append(0, b"1")
    with pytest.raises(Exception, match=r"\[clonos:UserFunctionError\] scripted\nTraceback: line 1"):
        rig.query.awaitTermination(60)
    rig.stop()
    assert nothing_is_left(spark, tmp_path)


def test_a_record_that_kills_every_replica_fails_the_query(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    rig = Rig(spark, tmp_path, "microbatch", attempts=2)
    log.append(0, b"1")
    rig.start(tmp_path / "log", [NUMBER], script=lambda node, *_: "die" if node == OPERATOR else None)
    with pytest.raises(
        Exception,
        match=r"\[clonos:ReplicaLost\] operator 'node 2', instance \d, epoch 0: .* 3 times without progress; "
        "the first bundle not acknowledged is 1",
    ):
        rig.query.awaitTermination(60)
    rig.stop()
    assert rig.replicas.reports  # one per task attempt
    for report in map(parse_request, rig.replicas.reports):
        assert isinstance(report, ReportFailure)
        assert (report.generation, report.origin.node, report.epoch) == (1, OPERATOR, 0)
        assert report.error == "ReplicaLost" and "3 times without progress" in report.message
    assert nothing_is_left(spark, tmp_path)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_silent_replica_is_replaced(spark: SparkSession, tmp_path: Path, log: LogWriter, mode: str) -> None:
    def script(node: int, instance: int, attempt: int, bundles: int) -> str | None:
        return "hang" if node == SINK and bundles == 1 else None

    rig = Rig(spark, tmp_path, mode, heartbeat_ms=1000)
    rig.start(tmp_path / "log", [NUMBER], script=script)
    log.append_many(0, [b"%d" % number for number in range(10)])
    rig.wait(lambda: len(rig.rows) >= 10)
    rig.stop()
    assert sorted(row["number"] for row in rig.rows) == list(range(10))
    assert nothing_is_left(spark, tmp_path)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_stopping_a_stuck_query_leaves_nothing(
    spark: SparkSession, tmp_path: Path, log: LogWriter, mode: str
) -> None:
    rig = Rig(spark, tmp_path, mode, inflight_bytes=1000)
    rig.start(
        tmp_path / "log",
        [NUMBER],
        script=lambda node, instance, attempt, bundles: "hang" if bundles == 3 else None,
        window=1,
    )
    log.append_many(0, [b"%d" % number for number in range(100_000)])
    rig.wait(lambda: len(conduit_threads(spark)) >= 4 and (tmp_path / "spill").exists())
    rig.stop()
    assert nothing_is_left(spark, tmp_path)


def test_slow_replicas_hold_the_source_back(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    rig = Rig(spark, tmp_path, "microbatch", bundle_rows=100)
    log.append_many(0, [b"%d" % number for number in range(5_000)])
    rig.start(tmp_path / "log", [NUMBER], window=2, delay=0.002)
    rig.wait(lambda: len(rig.rows) >= 5_000)
    rig.stop()
    for instance in rig.replicas.instances.values():
        assert max(instance.bundle_rows, default=0) <= 100
    assert sorted(row["number"] for row in rig.rows) == list(range(5_000))


def test_every_instance_runs_in_an_epoch_without_rows(
    spark: SparkSession, tmp_path: Path, log: LogWriter
) -> None:
    rig = Rig(spark, tmp_path, "microbatch")
    source = spark.readStream.format("clonos").load(str(tmp_path / "log"))
    hidden = [
        "1L as _clonos_channel",
        "_clonos_source_position as _clonos_position",
        "cast(pmod(_clonos_source_position, 2) as int) as _clonos_destination_0",
    ]
    log.append(0, b"drop")
    rig.start_on(source.filter("value <> binary('drop')").selectExpr(*hidden, "1 as a"))
    rig.wait(lambda: rig.committed() == [0])
    rig.stop()
    assert {who: len(instance.fences) for who, instance in rig.replicas.instances.items()} == {
        (OPERATOR, 0): 1,
        (OPERATOR, 1): 1,
        (SINK, 0): 1,
        (SINK, 1): 1,
    }


def test_what_does_not_fit_is_said_when_the_query_is_built(spark: SparkSession, tmp_path: Path) -> None:
    rig = Rig(spark, tmp_path, "microbatch", parallelism=3)
    frame = spark.range(3).toDF("id")
    with pytest.raises(Exception, match="the input of a causal stage has a column _clonos_block"):
        rig.stage(frame, OPERATOR)
    with pytest.raises(Exception, match="a source's rows begin with the columns"):
        rig.start_on(frame)
    frame = frame.withColumnRenamed("id", "_clonos_block")
    rig = Rig(spark, tmp_path, "sometimes")
    with pytest.raises(Exception, match="mode must be microbatch or realtime"):
        rig.stage(frame, OPERATOR)


def test_another_number_of_partitions_is_refused(spark: SparkSession, tmp_path: Path, log: LogWriter) -> None:
    rig = Rig(spark, tmp_path, "microbatch", parallelism=3)
    rig.start(tmp_path / "log", [NUMBER])
    log.append(0, b"1")
    with pytest.raises(Exception, match="compiled for 3 instances, Spark runs 2 partitions"):
        rig.query.awaitTermination(60)
    rig.stop()
    assert nothing_is_left(spark, tmp_path)
