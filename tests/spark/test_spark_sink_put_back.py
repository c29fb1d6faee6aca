"""A sink is put back alone, or given another place, in the middle of an epoch: what it has lost nothing sends again.
Senders that keep what they have sent cut it where no failure leads behind it, and sinks do not hold what is visible."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos.errors import ClonosError
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.topology import Node, NodeKind, Topology
from clonos.spark.query_snapshots import SnapshotsInside

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
LAST = Origin.of(2, 0)
ONE = Topology((Node(1, NodeKind.SOURCE, "in", 0), Node(2, NodeKind.OPERATOR, "count", 1, (1,))))


def numbered(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    yield row.k, row.n, ctx.state["seen"]


@pytest.fixture(params=["eager", "uncoordinated", "coordinated"])
def started(place: Place, request: pytest.FixtureRequest) -> Place:
    """A query that has made rows in an epoch that stays open, and cut the log of the first of them."""
    place.spark.conf.set("spark.clonos.recovery", request.param)
    place.spark.conf.set("spark.clonos.recovery.interval", "100ms")
    start(place)
    send(place, 5)
    return place


def start(place: Place) -> None:
    stream = (
        place.causal(SCHEMA)
        .groupBy("k")
        .process(numbered, f"{SCHEMA}, seen long", name="count", parallelism=1)
    )
    place.query = place.writer(stream, "realtime").trigger(realTime="10 minutes").start()


def send(place: Place, count: int, *, before: int = 0) -> None:
    """More rows, behind `before` ones that are visible in another place."""
    known = len(place.rows())
    place.write([{"k": "a", "n": before + known + at} for at in range(count)])
    place.until(lambda: len(place.rows()) >= known + count, "the rows")


def cut_upto(place: Place) -> int:
    """The last row for the sink that is not sent again, whichever of the operator's checkpoints it begins with."""
    found = SnapshotsInside(str(place.checkpoint), ONE)
    points = found.all(Epoch(0))[LAST]
    found.close()
    keeps = place.spark.conf.get("spark.clonos.recovery") != "coordinated"
    return min(((point.unkept if keeps else point.sent).get(0, -1) for point in points), default=-1)


def send_until_cut(place: Place, behind: int) -> None:
    def is_cut() -> bool:
        send(place, 1)
        return cut_upto(place) > behind

    place.until(is_cut, f"the log to be cut behind row {behind}")


def keep(place: Place, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place.output, copy)


def put_back(place: Place, copy: Path) -> None:
    shutil.rmtree(place.output)
    shutil.copytree(copy, place.output)


def assert_exact(rows: list[dict[str, Any]]) -> None:
    assert sorted(row["seen"] for row in rows) == [*range(1, len(rows) + 1)]
    assert sorted(row["n"] for row in rows) == [*range(len(rows))]


def test_a_sink_that_was_put_back_alone_is_refused_where_no_checkpoint_goes_with_it(
    started: Place, tmp_path: Path
) -> None:
    place = started
    keep(place, tmp_path / "older")
    send_until_cut(place, len(place.rows()))
    place.stop()
    keep(place, tmp_path / "newer")
    put_back(place, tmp_path / "older")
    with pytest.raises(
        ClonosError, match=r"the sink has lost output: node 3, instance 0 .* in the open epoch"
    ):
        start(place)
        place.query.awaitTermination()
    place.query = None
    put_back(place, tmp_path / "newer")  # as the hint says
    start(place)
    send(place, 3)
    place.stop()
    assert_exact(place.rows())


def test_a_sink_may_be_given_another_place(started: Place, tmp_path: Path) -> None:
    """What was cut is in the old one; what was not may be in both."""
    place = started
    send_until_cut(place, 1)
    place.stop()
    before = place.rows()
    place.output = tmp_path / "another"
    place.output.mkdir()
    start(place)
    send(place, 3, before=len(before))
    place.stop()
    both = {json.dumps(row, sort_keys=True) for row in (*before, *place.rows())}
    assert_exact([json.loads(row) for row in both])
    assert len(place.rows()) < len(both), "it need not have what was shown elsewhere"
