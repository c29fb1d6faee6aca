"""Lineage where rows reach an operator by several ways: each way counts, and none is gone twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from lineage_command import told
from modes import mostly
from streams import Place

import clonos

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
LEFT, RIGHT = "k string, n long, at timestamp", "k string, m long, later timestamp"
DIAMONDS = 4
RECORDS = 3


def same(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n


def counted(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Of the records before, too, as far as lineage knows."""
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, row.n


def left(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n, row.at


def right(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, 100 + row.n, row.at


def by_every_way(edges: dict[str, dict[str, bool]], row: str) -> dict[str, bool]:
    """The records of sources that a row is of, and whether that is certain by any of the ways: one after the other."""
    if row not in edges:
        return {row: True}
    found: dict[str, bool] = defaultdict(bool)
    for record, is_exact in edges[row].items():
        for source, is_known in by_every_way(edges, record).items():
            found[source] |= is_exact and is_known
    return dict(found)


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_each_operator_is_repeated_and_joined_once_however_many_ways_there_are(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    stream = place.causal(SCHEMA, partitions=1)
    for at in range(DIAMONDS):
        mapped = stream.map(same, SCHEMA, name=f"a{at}", parallelism=1)
        other = stream.groupBy("k").process(counted, SCHEMA, name=f"b{at}", parallelism=1)
        stream = mapped.union(other)
    place.start(stream, mode)
    place.write([{"k": "a", "n": n} for n in range(RECORDS)], partitions=1)
    place.await_rows(RECORDS * 2**DIAMONDS)
    place.finish()
    checkpoint, last = str(place.checkpoint), DIAMONDS - 1
    for through_state in (False, True):
        edges: dict[str, dict[str, bool]] = defaultdict(dict)
        for each in clonos.lineage(place.spark, checkpoint, through_state=through_state).collect():
            edges[each["row"]][each["input"]] = each["exact"]
        found = clonos.lineage(
            place.spark, checkpoint, of=f"b{last}", to="sources", through_state=through_state
        )
        plan = found._jdf.queryExecution().optimizedPlan().toString()
        assert (plan.count("Join "), plan.count("MapInArrow")) == (2 * last, 2 * last + 1)
        of: dict[str, dict[str, bool]] = defaultdict(dict)
        for each in found.collect():
            assert each["input"] not in of[each["row"]], "each once"
            of[each["row"]][each["input"]] = each["exact"]
        assert len(of) == RECORDS * 2**last
        assert of == {row: by_every_way(edges, row) for row in of}
        is_known = {each for sources in of.values() for each in sources.values()}
        assert is_known == ({True, False} if through_state else {True})
    first = clonos.lineage(place.spark, checkpoint, of=f"b{last}", to="a0").collect()
    assert {each["input_operator"] for each in first} == {"a0"}
    (record, *_) = [each for each in edges if each.startswith("2-")]
    (source,) = edges[record]
    rows = {row for call in told(place, capsys, source, "--forward") for row in call["rows"]}
    assert rows == {row for row in edges if by_every_way(edges, row).get(source)}


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_row_of_a_join_is_followed_from_a_record_that_comes_by_both_of_its_inputs(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    base = place.causal(LEFT, partitions=1).map(left, LEFT, name="base", parallelism=1)
    other = base.withWatermark("at", "1 second").map(right, RIGHT, name="other", parallelism=1)
    pairs = base.withWatermark("at", "1 second").join(
        other.withWatermark("later", "1 second"), "k", "inner", within="1 second", name="pair", parallelism=1
    )
    place.start(pairs, mode)
    for at in range(2):  # the second in another epoch: of the four rows two are of records of both
        place.write([{"k": "a", "n": at, "at": "2024-01-01 00:00:00"}], partitions=1)
        place.until(lambda at=at: len(place.rows()) >= (at + 1) ** 2, "pairs")  # type: ignore[misc]
        place.await_commit()
    place.finish()
    rows = [row["clonos_id"].rpartition("/")[2] for row in place.rows()]
    back = {row: told(place, capsys, row) for row in rows}
    sources = {
        record["id"]
        for calls in back.values()
        for call in calls
        for record in call["of"]
        if "source" in record
    }
    assert len(sources) == 2
    numbers = set()
    for source in sources:
        ahead = told(place, capsys, source, "--forward")
        followed = {source, *(row for call in ahead for row in call["rows"])}
        pair = {
            call["rows"][0]: {each["id"] for each in call["of"]} & followed
            for call in ahead
            if call["operator"] == "pair"
        }
        assert len(pair) == sum(call["operator"] == "pair" for call in ahead) == 3
        wanted = {row: {each["id"] for each in calls[0]["of"]} & followed for row, calls in back.items()}
        assert pair == {row: of for row, of in wanted.items() if of}
        numbers |= {len(of) for of in pair.values()}
    assert numbers == {1, 2}
