"""The recovery that a query chooses: what it offers, and what is refused with what to do instead."""

from __future__ import annotations

import itertools
import os
import re
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.errors import CheckpointMismatch, ClonosError, QueryDefinitionError, SnapshotCorrupt
from clonos.protocol.destination import destination
from clonos.protocol.ids import NodeId
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.spark.checkpoint import Checkpoint

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
POISON = -1
OUT = "k string, n long, total long"


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield (*row, ctx.state["total"])


def act(key: Any, row: Any, ctx: Any) -> Any:
    yield (*row, ctx.effect(int, row.n, key=f"{row.k}-{row.n}"))


@pytest.fixture
def coordinated(place: Place) -> Place:
    place.spark.conf.set("spark.clonos.recovery", "coordinated")
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")
    return place


def totals(place: Place, **how: Any) -> Any:
    return place.causal(SCHEMA).groupBy("k").process(total, OUT, name="total", **how)


def test_rows_come_out_once_and_the_query_goes_on_where_it_was(coordinated: Place) -> None:
    place = coordinated
    place.write([{"k": f"k{at % 3}", "n": at} for at in range(30)])
    place.start(totals(place), "realtime")
    place.await_rows(30)
    place.stop()
    place.write([{"k": f"k{at % 3}", "n": at} for at in range(30, 60)])
    place.start(totals(place), "realtime")
    rows = place.await_rows(60)
    for key in range(3):
        of_key = [row for row in rows if row["k"] == f"k{key}"]
        ends = sorted(row["total"] for row in of_key)
        numbers = [row["n"] for row in sorted(of_key, key=lambda row: row["total"])]
        assert ends == [sum(numbers[: at + 1]) for at in range(20)]
        assert sorted(numbers) == list(range(key, 60, 3))


def test_it_is_told_when_the_last_round_was_complete_and_what_sinks_hold(
    coordinated: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place = coordinated
    place.spark.conf.set("spark.clonos.metrics.port", "0")
    place.write([{"k": "a", "n": 1}])
    query = place.start(totals(place), "realtime")
    place.await_rows(1)
    place.until(lambda: query.causal_status()["round_at"] is not None, "a complete round")
    assert cli.main(["status", str(place.checkpoint)]) == 0
    assert re.search(r"under way, last round complete .* ago", capsys.readouterr().out)
    address = query.causal_status()["metrics"]
    place.until(lambda: asked(address, r"clonos_round_complete_timestamp_seconds\{.*\} \d"), "the round")
    place.until(lambda: asked(address, r"clonos_held_rows\{.*\} 0\.0$"), "what the sink holds")


def asked(address: str, line: str) -> bool:
    """Whether the page of metrics has such a line."""
    with urlopen(address, timeout=10) as page:
        return re.search(f"^{line}", page.read().decode(), re.MULTILINE) is not None


def test_a_checkpoint_keeps_its_recovery(coordinated: Place) -> None:
    place = coordinated
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place), "realtime")
    place.await_rows(1)
    place.stop()
    place.spark.conf.set("spark.clonos.recovery", "causal")
    with pytest.raises(
        CheckpointMismatch,
        match=r"began with spark.clonos.recovery=coordinated, and is now to go on with causal.*Set spark.clonos",
    ):
        place.start(totals(place), "realtime")
    place.spark.conf.set("spark.clonos.recovery", "coordinated")  # as the hint says
    place.start(totals(place), "realtime")
    place.write([{"k": "a", "n": 2}])
    assert sorted(row["total"] for row in place.await_rows(2)) == [1, 3]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"standby": "hot"}, "operator 'total' has a standby.*Leave standby out"),
        ({"on_poison": "dead_letter"}, "operator 'total' has on_poison='dead_letter'.*Leave on_poison out"),
    ],
)
def test_what_needs_a_recording_is_refused_and_works_as_the_hint_says(
    coordinated: Place, how: dict[str, Any], says: str
) -> None:
    place = coordinated
    with pytest.raises(QueryDefinitionError, match=says):
        place.start(totals(place, **how), "realtime")
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place), "realtime")
    place.await_rows(1)


def test_a_standby_that_is_set_for_all_operators_is_refused_by_the_name_of_the_setting(
    coordinated: Place,
) -> None:
    place = coordinated
    place.spark.conf.set("spark.clonos.standby", "hot")
    with pytest.raises(
        QueryDefinitionError, match=r"'total' has a standby.*Leave spark\.clonos\.standby out"
    ):
        place.start(totals(place), "realtime")
    place.spark.conf.unset("spark.clonos.standby")
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place), "realtime")
    place.await_rows(1)


def test_there_is_no_gap_to_go_on_behind(coordinated: Place) -> None:
    place = coordinated
    place.spark.conf.set("spark.clonos.onGap", "at_least_once")
    with pytest.raises(
        QueryDefinitionError, match=r"onGap=at_least_once is about.*Leave spark.clonos.onGap out"
    ):
        place.start(totals(place), "realtime")
    place.spark.conf.unset("spark.clonos.onGap")
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place), "realtime")
    place.await_rows(1)


class Dies:
    """At one record, as soon as others have come further than they were."""

    def __init__(self, output: str) -> None:
        self._output = output

    def __call__(self, key: Any, row: Any, ctx: Any) -> Any:
        if row.n == POISON:
            seen = self._seen()
            while self._seen() == seen:
                time.sleep(0.01)
            os._exit(3)
        return total(key, row, ctx)

    def _seen(self) -> int:
        return sum(path.stat().st_size for path in Path(self._output).glob("*.jsonl"))


@pytest.mark.parametrize(("recovery", "restarts"), [("uncoordinated", 2), ("eager", 1)])
def test_a_record_that_ends_every_process_ends_the_query_however_far_others_come(
    place: Place, recovery: str, restarts: int
) -> None:
    """Where a process is replaced the record is known for poison by then. What others are given goes past the instance
    that dies, in an epoch that does not end: records that wait for it would hold up their senders, and an end them."""
    conf = {"recovery": recovery, "recovery.interval": "50ms", "restart.limit": "2", "replica.attempts": "1"}
    for name, value in conf.items():
        place.spark.conf.set(f"spark.clonos.{name}", value)
    stream = place.causal(SCHEMA).groupBy("k").process(Dies(str(place.output)), OUT, name="dies")
    place.query = query = place.writer(stream, "realtime").trigger(realTime="1 hour").start()
    place.write([{"k": "poison", "n": POISON}])
    others = [key for key in map(str, range(8)) if destination((key,), 2) != destination(("poison",), 2)]
    with pytest.raises(ClonosError, match=r"operator 2, instance \d .*ended by itself with exit code 3"):
        for number in itertools.count():
            place.write([{"k": key, "n": number} for key in others])
            query.awaitTermination(0.05)
    assert len(query.restarts) == restarts


def test_a_checkpoint_that_is_damaged_is_named_where_nothing_stands_in_for_it(place: Place) -> None:
    place.spark.conf.set("spark.clonos.recovery", "eager")
    place.write([{"k": "a", "n": at} for at in range(10)])
    place.query = query = place.writer(totals(place), "realtime").trigger(realTime="1 hour").start()
    place.await_rows(10)
    moved = [*(place.checkpoint / "clonos/state/2").glob("*/manifests/*-mid.manifest")]
    for manifest in moved:
        manifest.write_bytes(manifest.read_bytes()[:-1])
    place.kill(2, int(moved[0].parts[-3]))
    with pytest.raises(SnapshotCorrupt, match=r"in none of its checkpoints that can be read.*-mid.manifest"):
        query.awaitTermination(120)
    assert query.restarts == []


def test_one_operator_may_have_another_recovery_and_the_sinks_have_that_of_the_operators_before_them(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What only operators of eager checkpoints have made is seen at once, other rows when no failure leads behind."""
    place.spark.conf.set("spark.clonos.recovery", "uncoordinated")
    place.spark.conf.set("spark.clonos.recovery.interval", "1h")
    soon, later = (clonos.sinks.jsonl(path, durable=False) for path in (place.output, tmp_path / "later"))

    def start(recovery: str) -> Any:
        place.stop()
        first = place.causal(SCHEMA).groupBy("k").process(total, OUT, name="first", recovery=recovery)
        second = first.select("k", "n").groupBy("k").process(total, OUT, name="second")
        writer = first.writeStream.to(soon, name="soon").to(later, name="later", stream=second)
        writer = writer.option("checkpointLocation", str(place.checkpoint)).trigger(realTime="1 hour")
        place.query = writer.start()
        return place.query

    query = start("eager")
    for number in range(2):
        place.write([{"k": "a", "n": 10 * number + at} for at in range(10)])
        place.await_rows(10 * (number + 1))
        for instance in range(2):
            place.kill(2, instance)
    assert cli.main(["status", str(place.checkpoint)]) == 0
    said = capsys.readouterr().out
    assert "recoveries: eager: first, soon; uncoordinated: second, later" in said, said
    with pytest.raises(
        CheckpointMismatch, match=r"'(first|soon)'.*with recovery=eager.*Give operators the recov"
    ):
        start("uncoordinated")
    query = start("eager")  # as the hint says
    place.write([{"k": "a", "n": at} for at in range(20, 30)])
    assert sorted(row["n"] for row in place.await_rows(30)) == list(range(30))
    assert query.restarts == []
    shown = sum(path.stat().st_size for path in (tmp_path / "later").glob("*.jsonl"))
    assert shown == 0, "the epoch has not committed, nor has `second` taken a checkpoint"


@pytest.mark.parametrize("recovery", ["coordinated", "unaligned", "communication_induced"])
def test_an_operator_in_front_that_stores_before_it_sends_never_goes_back(
    place: Place, tmp_path: Path, recovery: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has made is seen at once by a sink of its own, and its lost process is replaced alone."""
    place.spark.conf.set("spark.clonos.recovery", recovery)
    place.spark.conf.set("spark.clonos.recovery.interval", "200ms")
    soon, later = (clonos.sinks.jsonl(path, durable=False) for path in (place.output, tmp_path / "later"))
    first = place.causal(SCHEMA).groupBy("k").process(total, OUT, name="first", recovery="eager")
    second = first.select("k", "n").groupBy("k").process(total, OUT, name="second")
    writer = first.writeStream.to(soon, name="soon").to(later, name="later", stream=second)
    writer = writer.option("checkpointLocation", str(place.checkpoint)).trigger(realTime="1 hour")
    place.query = query = writer.start()

    def seen_later() -> int:
        return sum(len(path.read_text().splitlines()) for path in (tmp_path / "later").glob("*.jsonl"))

    with_rows = destination(("a",), 2)
    for number in range(2):
        place.write([{"k": "a", "n": 10 * number + at} for at in range(10)])
        place.await_rows(10 * (number + 1))
        place.kill(2, with_rows)
    assert query.restarts == []
    place.until(lambda: seen_later() == 20, "what is seen when no failure leads behind it")
    place.kill_until_restart(3, with_rows)
    place.write([{"k": "a", "n": at} for at in range(20, 30)])
    assert sorted(row["n"] for row in place.await_rows(30)) == list(range(30))
    place.until(lambda: seen_later() == 30, "what is seen behind the start")
    assert len(query.restarts) == 1
    assert cli.main(["status", str(place.checkpoint)]) == 0
    said = capsys.readouterr().out
    assert "eager: first, soon" in said and f"{recovery}: second, later" in said, said


def test_who_asked_for_rows_at_once_is_told_that_they_wait(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.spark.conf.set("spark.clonos.recovery", "uncoordinated")
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")

    def total_behind(recovery: str | None) -> Any:
        kept = place.causal(SCHEMA).filter(lambda row, ctx: True, name="kept", recovery=recovery)
        return kept.groupBy("k").process(total, OUT, name="total", recovery="eager")

    with pytest.raises(
        QueryDefinitionError, match=r"batch of foreachBatch.*'total' has recovery='eager'.*eager' to"
    ):
        place.start(total_behind(None), "realtime", clonos.sinks.batches(lambda df, epoch: None))
    place.start(total_behind(None), "realtime")
    assert "the rows of 'total', which are stored before they are sent, are not seen at once" in caplog.text
    assert "it goes back with 'kept', which has uncoordinated checkpoints" in caplog.text
    place.stop()
    caplog.clear()
    place.checkpoint = place.base / "another"
    place.start(total_behind("eager"), "realtime")  # as the warning says
    assert "not seen at once" not in caplog.text
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)


def test_micro_batch_has_causal_logging(coordinated: Place) -> None:
    place = coordinated
    with pytest.raises(QueryDefinitionError, match=r"are for real time.*call .trigger\(realTime"):
        place.start(totals(place))
    place.spark.conf.set("spark.clonos.recovery", "causal")
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place))
    place.await_rows(1)


@clonos.claim("hidden")
def hidden(key: Any, row: Any, ctx: Any) -> Any:
    return total(key, row, ctx)


@pytest.mark.parametrize(("mode", "instead"), [("realtime", "eager"), ("microbatch", "batch")])
def test_what_a_function_claims_to_depend_on_needs_a_recovery_that_suffices(
    place: Place, mode: str, instead: str
) -> None:
    def made() -> Any:
        return place.causal(SCHEMA).groupBy("k").process(hidden, OUT, name="hidden")

    with pytest.raises(
        QueryDefinitionError,
        match=rf"'hidden' claims.*Set spark.clonos.recovery to {instead}.*claim 'recorded'",
    ):
        place.start(made(), mode)
    place.spark.conf.set("spark.clonos.recovery", instead)  # as the hint says
    place.write([{"k": "a", "n": 1}])
    place.start(made(), mode)
    place.await_rows(1)


@pytest.mark.parametrize("recovery", ["coordinated", "unaligned", "communication_induced"])
def test_a_batch_of_the_driver_is_refused(place: Place, recovery: str) -> None:
    place.spark.conf.set("spark.clonos.recovery", recovery)
    with pytest.raises(
        QueryDefinitionError,
        match=r"a batch of foreachBatch.*Give another sink, or recovery='eager' to the operators before it",
    ):
        place.start(totals(place), "realtime", clonos.sinks.batches(lambda df, epoch: None))
    seen: list[int] = []
    to = clonos.sinks.batches(lambda df, epoch: seen.extend(row.n for row in df.select("n").collect()))
    place.write([{"k": "a", "n": 1}])
    place.start(totals(place, recovery="eager"), "realtime", to)  # as the hint says
    place.until(lambda: seen == [1], "the row")


def test_batches_of_the_driver_have_each_row_once_where_nothing_waits_for_the_epoch(place: Place) -> None:
    place.spark.conf.set("spark.clonos.recovery", "eager")
    seen: list[tuple[str, int, int]] = []

    def take(df: Any, epoch: int) -> None:
        seen.extend((row.k, row.n, row.total) for row in df.select("k", "n", "total").collect())

    query = place.start(totals(place), "realtime", clonos.sinks.batches(take))
    for number in range(3):
        place.write([{"k": "a", "n": 10 * number + at} for at in range(10)])
        place.until(lambda upto=10 * (number + 1): len(seen) >= upto, "the rows of a batch")
        place.kill()
    assert sorted(n for _, n, _ in seen) == list(range(30)) and query.restarts == []
    in_order = sorted(seen, key=lambda row: row[2])
    assert [total for _, _, total in in_order] == [
        sum(n for _, n, _ in in_order[: at + 1]) for at in range(30)
    ]


def test_an_effect_is_refused_when_it_is_asked_for(coordinated: Place) -> None:
    place = coordinated
    place.write([{"k": "a", "n": 1}])
    query = place.start(place.causal(SCHEMA).groupBy("k").process(act, OUT, name="act"), "realtime")
    with pytest.raises(QueryDefinitionError, match=r"acts on the outside at once.*or have it recorded"):
        query.awaitTermination(120)
    place.stop()
    assert place.rows() == []


def test_every_type_is_held_over_a_restart(coordinated: Place, tmp_path: Path) -> None:
    """What a sink holds goes through its checkpoint."""
    place = coordinated
    schema = (
        "k string, n long, d decimal(38,9), day date, t timestamp, w timestamp_ntz, b binary, "
        "s struct<x: int, y: array<struct<z: date>>>, m map<string, double>"
    )
    row = {
        "k": "a", "n": 1, "d": "12345678901234567890.123456789", "day": "2026-10-25", "t": "2026-10-25 00:30:00",
        "w": "2026-10-25 02:30:00", "b": "AP8=", "s": {"x": 1, "y": [{"z": "1900-01-01"}]}, "m": {"inf": 1.5},
    }  # fmt: skip
    place.spark.conf.set("spark.clonos.recovery.interval", "1h")  # so that rows are seen with their epoch
    stream = place.causal(schema).groupBy("k").process(_same, schema, name="same")
    place.write([row])
    place.start(stream, "realtime")
    place.await_rows(1)
    place.stop()
    (before,) = place.rows()
    place.write([{**row, "n": 2}])
    place.start(stream, "realtime")
    place.await_rows(2)
    _, after = place.rows()
    assert {**before, "n": 2, "clonos_id": 0} == {**after, "clonos_id": 0}


def _same(key: Any, row: Any, ctx: Any) -> Any:
    yield row


def test_another_setting_that_gives_all_the_same_recoveries_goes_on(tmp_path: Path) -> None:
    """What was kept is the same."""
    topology = Topology(
        (
            Node(1, NodeKind.SOURCE, "in", 0),
            Node(2, NodeKind.OPERATOR, "total", 1, (1,)),
            Node(3, NodeKind.SINK, "out", 1, (2,)),
        )
    )
    own = Recoveries.of(topology, RecoveryKind.CAUSAL, {NodeId(2): RecoveryKind.EAGER})
    query = Checkpoint(str(tmp_path)).open(topology, own)
    assert Checkpoint(str(tmp_path)).open(topology, Recoveries.of(topology, RecoveryKind.EAGER)) == query
    with pytest.raises(CheckpointMismatch, match=r"recovery=causal, and is now to go on with event_log"):
        Checkpoint(str(tmp_path)).open(topology, Recoveries.of(topology, RecoveryKind.EVENT_LOG))
