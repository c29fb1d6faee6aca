"""Operators on real Spark: what each does to rows, in both modes, with a replica killed on the way."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_chain_of_every_kind_goes_on_where_it_was(place: Place, mode: str) -> None:
    def count(key: Any, row: Any, ctx: Any) -> Any:
        state = ctx.state
        state["n"] = state.get("n", 0) + 1
        yield key[0], row.word, state["n"], ctx.now_us() > 0 and ctx.random.random() < 1

    words = (
        place.causal("line string")
        .flat_map(
            lambda row: [(word,) for word in row.line.split()],
            "word string",
            name="split",
            pure=True,
            parallelism=1,
        )
        .filter(lambda row, ctx: row.word != "skipped", name="some", parallelism=1)
        .map(
            lambda row, ctx: {"word": row.word.lower(), "first": row.word[0]},
            "word string, first string",
            name="low",
            parallelism=1,
        )
        .groupBy("first")
        .process(count, "first string, word string, n long, drawn boolean", name="count")
    )
    lines = [{"line": f"Alpha{n} skipped beta{n} alpha{n}"} for n in range(20)]
    place.write(lines[:10])
    place.start(words, mode)
    place.until(lambda: len(place.rows()) >= 30, "first rows")
    place.kill(node=5)
    place.kill(node=2)
    place.write(lines[10:])
    rows = place.await_rows(60)
    for first, word in (("a", "alpha"), ("b", "beta"), ("A", "alpha")):
        mine = [row for row in rows if row["first"] == first]
        assert [row["n"] for row in mine] == list(range(1, 21))
        assert {row["word"] for row in mine} == {f"{word}{n}" for n in range(20)}
    assert all(row["drawn"] for row in rows) and place.query.restarts == []


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_two_sources_are_united(place: Place, mode: str) -> None:
    def count(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return [(key[0], row.n, ctx.state["n"])]

    schema = "k string, n long"
    one, two = place.causal(schema, "one"), place.causal(schema, "two")
    counted = one.union(two).groupBy("k").process(count, f"{schema}, at long", name="count")
    place.write([{"k": f"k{n % 3}", "n": n} for n in range(12)], "one")
    place.start(counted, mode)
    place.until(lambda: len(place.rows()) >= 12, "rows of the first source")
    place.write([{"k": f"k{n % 3}", "n": n} for n in range(12, 24)], "two")
    place.until(lambda: len(place.rows()) >= 24, "rows of the second source")
    place.kill(node=3)
    place.write([{"k": f"k{n % 3}", "n": n} for n in range(24, 36)], "one")
    rows = place.await_rows(36)
    assert {row["n"] for row in rows} == set(range(36))
    for key in ("k0", "k1", "k2"):
        assert [row["at"] for row in rows if row["k"] == key] == list(range(1, 13))


def test_an_operator_united_with_a_source_goes_on_while_it_has_no_input(place: Place) -> None:
    """A branch without new data runs in every epoch: Spark does not cut away the stage that it begins with."""

    def count(key: Any, row: Any, ctx: Any) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield key[0], row.n, ctx.state["n"] + row.seen

    schema = "k string, n long, seen long"
    one, two = place.causal(schema, "one"), place.causal(schema, "two")
    both = two.union(one.groupBy("k").process(count, schema, name="inner"))
    place.start(both.groupBy("k").process(count, schema, name="outer", parallelism=3))
    row = {"k": "k", "n": 0, "seen": 0}
    place.write([row], "one")
    assert [r["seen"] for r in place.await_rows(1)] == [2]
    ends = inner_ends(place)
    for epoch in range(3):
        place.write([row], "two")
        rows = place.await_rows(2 + epoch)
    assert [r["seen"] for r in rows] == [2, 2, 3, 4]
    assert min(inner_ends(place)) > max(ends)
    place.write([row], "one")
    assert [r["seen"] for r in place.await_rows(5)][-1] == 7  # 2 of the inner one, 5 of the outer one
    place.kill(node=3)
    place.write([row], "two")
    place.await_rows(6)
    place.write([row], "one")
    assert [r["seen"] for r in place.await_rows(7)][-1] == 10
    assert place.query.restarts == []


def inner_ends(place: Place) -> list[Any]:
    """The last epochs of the inner operator's instances, once all have ended."""

    def ends() -> list[Any]:
        return [replica["at_end"] for replica in place.query.replicas() if replica["node"] == 3]

    place.until(lambda: None not in ends(), "end of the epoch")
    return ends()


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_explicit_identity_and_services_in_a_function_of_sparks_signature(place: Place, mode: str) -> None:
    import pandas as pd

    def draw(key: Any, frames: Any, state: Any) -> Any:
        services = clonos.current()
        (n,) = state.getOption or (0,)
        n += sum(map(len, frames))
        state.update((n,))
        drawn = (
            str(services.uuid4()),
            services.call(len, "four"),
            services.now() > services.now().min.replace(tzinfo=dt.UTC),
        )
        yield pd.DataFrame([(key[0], n, *drawn)], columns=["k", "n", "id", "four", "later"])

    place.write([])
    source = place.spark.readStream.format("clonos").load(str(place.base / "in"))
    source = source.selectExpr("cast(value as string) as k", "partition + 5 as p", "position as at")
    stream = clonos.causal(source, channel="p", position=source["at"]).groupBy("k")
    output = "k string, n long, id string, four long, later boolean"
    place.start(
        stream.applyInPandasWithState(draw, output, "n long", "append", "NoTimeout", name="draw"), mode
    )
    place.write(["a"])
    place.until(lambda: len(place.rows()) >= 1, "a row")
    place.kill(instance=0)
    place.kill(instance=1)
    place.write(["a"])
    rows = place.await_rows(2)
    assert [(row["n"], row["four"], row["later"]) for row in rows] == [(1, 4, True), (2, 4, True)]
    assert len({row["id"] for row in rows}) == 2 and place.query.restarts == []


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_source_straight_into_a_sink(place: Place, mode: str) -> None:
    place.write([{"n": n} for n in range(10)])
    place.start(place.causal("n long"), mode)
    place.until(lambda: len(place.rows()) >= 10, "rows")
    place.kill()
    place.write([{"n": n} for n in range(10, 20)])
    assert sorted(row["n"] for row in place.await_rows(20)) == list(range(20))


def test_sink_and_operators_may_differ_in_parallelism(place: Place) -> None:
    rows = place.causal("n long").map(lambda r: (r.n,), "n long", name="same", pure=True, parallelism=3)
    sink = clonos.sinks.jsonl(place.output, durable=False)
    writer = rows.writeStream.to(sink, name="files", parallelism=2)
    place.query = writer.option("checkpointLocation", str(place.checkpoint)).start()
    place.write([{"n": n} for n in range(20)])
    assert sorted(row["n"] for row in place.await_rows(20)) == list(range(20))
    assert {(r["node"], r["instance"]) for r in place.query.replicas()} == {
        (2, 0),
        (2, 1),
        (2, 2),
        (3, 0),
        (3, 1),
    }


def test_operators_without_a_name_are_called_after_their_function(place: Place) -> None:
    import pandas as pd

    def count(key: Any, frames: Any, state: Any) -> Any:
        (n,) = state.getOption or (0,)
        n += sum(map(len, frames))
        state.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def once(stream: Any) -> Any:
        return stream.groupBy("k").applyInPandasWithState(
            count, "k string, n long", "n long", "Update", "NoTimeout"
        )

    place.write([{"k": "a"}] * 3)
    for total in (1, 2):  # the second start finds the names of the first in the checkpoint
        place.start(once(once(place.causal("k string"))))
        place.query.processAllAvailable()
        topology = (place.checkpoint / "clonos" / "query.json").read_text()
        assert '"count-1"' in topology and '"count-2"' in topology
        assert max(row["n"] for row in place.rows()) >= total
        place.write([{"k": "a"}])
