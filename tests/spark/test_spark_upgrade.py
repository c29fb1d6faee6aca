"""A query that changes over its checkpoint: what is taken over and when, what is refused, and that the hints hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from streams import Place

from clonos.errors import CheckpointMismatch, DivergenceError, UserFunctionError
from clonos.spark.checkpoint import Checkpoint

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
ZONE = "spark.sql.session.timeZone"


def count(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield key[0], ctx.state["n"]


def tens(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = ctx.state.get("n", 0) + 10
    yield key[0], ctx.state["n"]


def counting(place: Place, fn: Any = count, version: str = "1", output: str = SCHEMA, **options: Any) -> Any:
    return place.causal(SCHEMA).groupBy("k").process(fn, output, name="count", version=version, **options)


def run(
    place: Place, stream: Any, rows: int, mode: str = "microbatch", new: int = 2, partitions: int = 2
) -> list[int]:
    """Start, feed, await so many rows in all, and stop with nothing under way."""
    place.start(stream, mode)
    place.write([{"k": "a", "n": 0}] * new, partitions=partitions)
    found = place.await_rows(rows)
    settle(place)
    place.stop()
    return [row["n"] for row in found]


def settle(place: Place) -> None:
    """Until what was read is committed, so that no epoch is open."""
    place.query.processAllAvailable()
    place.await_commit()


def test_state_under_timestamps_is_not_looked_for_in_another_zone(place: Place) -> None:
    schema = "t timestamp, n long"

    def stream() -> Any:
        return place.causal(schema).groupBy("t").process(count_by_time, "t timestamp, n long", name="count")

    place.spark.conf.set(ZONE, "Europe/Berlin")
    place.start(stream())
    place.write([{"t": "2026-07-01 12:00:00", "n": 0}] * 3)
    place.await_rows(3)
    place.stop()
    place.spark.conf.set(ZONE, "America/New_York")
    with pytest.raises(CheckpointMismatch, match=r"session time zone.*was 'Europe/Berlin'") as refused:
        place.start(stream())
    hint = 'spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")'
    assert hint in str(refused.value)
    exec(hint, {"spark": place.spark})
    place.write([{"t": "2026-07-01 12:00:00", "n": 0}] * 3)
    place.start(stream())
    assert sorted(row["n"] for row in place.await_rows(6)) == [1, 2, 3, 4, 5, 6]


def count_by_time(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield key[0], ctx.state["n"]


def test_a_new_version_takes_over_with_the_next_epoch_and_back(place: Place) -> None:
    assert run(place, counting(place), 2) == [1, 2]
    assert run(place, counting(place, tens, "2"), 4) == [1, 2, 12, 22]
    assert run(place, counting(place), 6) == [1, 2, 12, 22, 23, 24]
    history = Checkpoint(str(place.checkpoint)).history()
    assert [version for _, version in history.schedule(2).entries] == ["1", "2", "1"]


def test_a_function_that_acts_on_the_outside_has_a_new_version_too(place: Place) -> None:
    told = place.base / "told"

    def tell(line: str) -> None:
        with told.open("a") as file:
            file.write(line)

    def telling(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        for k, n in count(key, row, ctx):
            ctx.effect(tell, f"{n}\n", key=str(n))
            yield k, n

    def tens_too(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        for k, n in tens(key, row, ctx):
            ctx.effect(tell, f"{n}\n", key=str(n))
            yield k, n

    assert run(place, counting(place, telling), 2) == [1, 2]
    assert run(place, counting(place, tens_too, "2"), 4) == [1, 2, 12, 22]
    assert told.read_text().split() == ["1", "2", "12", "22"]


def test_what_an_open_epoch_has_shown_is_repeated_by_the_version_that_did_it(place: Place) -> None:
    leave_open(place)
    with pytest.raises(CheckpointMismatch, match="was begun by the program before") as refused:
        place.start(counting(place, tens, "2"), "realtime")
    assert "previous={'1': function}" in str(refused.value)
    place.start(counting(place, tens, "2", previous={"1": count}), "realtime")
    takes_over(place, 2)


def test_what_a_call_covers_changes_when_the_epoch_is_over(place: Place) -> None:
    broken: Any = place.checkpoint.parent / "broken"

    def total(key: Any, pdfs: Any, state: Any) -> Iterator[Any]:
        n = sum(len(pdf) for pdf in pdfs) + (state.getOption or (0,))[0]
        state.update((n,))
        if broken.exists():
            raise LookupError("not now")
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def stream(per: str) -> Any:
        kept = place.causal(SCHEMA, partitions=1).groupBy("k")  # those of one partition come into one batch
        return kept.applyInPandasWithState(
            total, SCHEMA, "n long", "update", "NoTimeout", name="total", per=per, parallelism=1
        )

    assert run(place, stream("batch"), 1, new=2, partitions=1) == [2]
    broken.touch()
    place.start(stream("batch"))
    place.write([{"k": "a", "n": 0}] * 3, partitions=1)
    with pytest.raises(UserFunctionError, match="not now"):
        place.query.awaitTermination(60)
    place.stop()
    broken.unlink()
    with pytest.raises(CheckpointMismatch, match=r"only when that epoch is over.*availableNow") as refused:
        place.start(stream("bundle"))
    assert "per of node 2 ('total') was 'batch' and is 'bundle' now" in str(refused.value)
    query = place.writer(stream("batch")).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [row["n"] for row in place.rows()] == [2, 5]
    assert run(place, stream("bundle"), 3, new=1, partitions=1) == [2, 5, 6]
    assert run(place, stream("bundle"), 4, "realtime", new=1, partitions=1) == [2, 5, 6, 7]
    history = Checkpoint(str(place.checkpoint)).history()
    assert [one.program.node(2).per for one in history.bindings] == ["batch", "bundle"]


def test_one_more_field_and_one_more_column(place: Place) -> None:
    assert run(place, counting(place), 2) == [1, 2]

    def more(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        yield key[0], ctx.state["n"], row.extra

    wider = place.causal("k string, n long, extra string").groupBy("k")
    stream = wider.process(more, "k string, n long, extra string", name="count", version="2")
    place.start(stream)
    place.write([{"k": "a", "n": 0, "extra": "x"}])
    rows = place.await_rows(3)
    assert rows[-1] == {"k": "a", "n": 3, "extra": "x"}
    settle(place)
    place.stop()
    with pytest.raises(CheckpointMismatch, match="lacks 'extra', which it had"):
        place.start(counting(place))


def test_state_is_migrated_once(place: Place) -> None:
    assert run(place, counting(place), 2) == [1, 2]

    def listed(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["seen"] = [*ctx.state.get("seen", []), 0]
        yield key[0], len(ctx.state["seen"])

    def to_list(state: dict[str, Any], version: str) -> dict[str, Any]:
        assert version == "1"
        return {"seen": [0] * state["n"]}

    def back(state: dict[str, Any], version: str) -> dict[str, Any]:
        assert version == "2"
        return {"n": len(state["seen"])}

    assert run(place, counting(place, listed, "2", migrate=to_list), 4) == [1, 2, 3, 4]
    assert run(place, counting(place, listed, "2", migrate=to_list), 6) == [1, 2, 3, 4, 5, 6]
    assert run(place, counting(place, migrate=back), 8) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_an_open_first_epoch_of_a_version_is_repeated_with_its_migrate(place: Place) -> None:
    """A user who rolls back, or assumes that all state has been brought up to date, must still bring it along."""
    assert run(place, counting(place), 2) == [1, 2]

    def listed(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        ctx.state["seen"] = [*ctx.state.get("seen", []), 0]
        yield key[0], len(ctx.state["seen"])

    def to_list(state: dict[str, Any], version: str) -> dict[str, Any]:
        return {"seen": [0] * state["n"]}

    def back(state: dict[str, Any], version: str) -> dict[str, Any]:
        return {"n": len(state["seen"])}

    def put(key: str) -> None:
        before = len(place.rows())
        place.write([{"k": key, "n": 0}] * 2)
        place.await_rows(before + 2)

    place.query = long_epoch(place, counting(place, listed, "2", migrate=to_list))
    put("b")
    place.stop()
    for forgetful in (
        counting(place, listed, "2"),
        counting(place, previous={"2": listed}, migrate=back),
    ):
        with pytest.raises(
            CheckpointMismatch, match=r"with its migrate, which .* \(function, on_timer, migrate\)"
        ):
            place.start(forgetful, "realtime")
    place.query = long_epoch(place, counting(place, previous={"2": (listed, None, to_list)}, migrate=back))
    put("a")
    place.stop()
    place.start(counting(place, previous={"2": (listed, None, to_list)}, migrate=back), "realtime")
    since = max(Checkpoint(str(place.checkpoint)).history().schedule(2).entries)[0]
    place.until(lambda: Checkpoint(str(place.checkpoint)).committed() >= since, "the old version runs again")
    put("a")
    put("b")
    numbers = [(row["k"], row["n"]) for row in place.rows()]
    assert sorted(numbers) == [("a", n) for n in range(1, 7)] + [("b", n) for n in range(1, 5)]


def test_a_function_changed_on_purpose_goes_on_as_the_hint_says(place: Place) -> None:
    """Without a new version the replay finds it out; with one, and the function as it was, the query goes on."""
    leave_open(place)
    place.query = long_epoch(place, counting(place, tens))
    with pytest.raises(DivergenceError) as diverged:
        place.query.awaitTermination(60)
    assert "a new version=" in str(diverged.value)
    assert "previous={old version: old function}" in str(diverged.value)
    place.query = None
    place.start(counting(place, tens, "2", previous={"1": count}), "realtime")
    takes_over(place, 2)


def leave_open(place: Place) -> None:
    """Two rows are visible of an epoch that is not over."""
    place.query = long_epoch(place, counting(place))
    place.write([{"k": "a", "n": 0}] * 2)
    place.await_rows(2)
    place.stop()


def long_epoch(place: Place, stream: Any) -> Any:
    return place.writer(stream).trigger(realTime="5 minutes").start()


def takes_over(place: Place, before: int) -> None:
    """The running query goes on with steps of one, and then, from an epoch on, of ten."""
    checkpoint = Checkpoint(str(place.checkpoint))
    place.write([{"k": "a", "n": 0}] * 2)
    place.until(lambda: len(place.rows()) >= before + 2, "what the old version still does")
    since = max(checkpoint.history().schedule(2).entries)[0]
    place.until(lambda: checkpoint.committed() >= since, "the new version runs")
    place.write([{"k": "a", "n": 0}] * 2)
    numbers = [row["n"] for row in place.await_rows(before + 4)]
    steps = [after - earlier for earlier, after in zip([0, *numbers], numbers, strict=False)]
    assert steps[:before] == [1] * before
    assert steps[-2:] == [10, 10]
    assert steps == sorted(steps), "the version changes once, at a boundary"


def test_the_other_way_out_is_to_finish_the_epoch(place: Place) -> None:
    leave_open(place)
    advised = r"start the old program once until the epoch has committed, with \.trigger\(availableNow=True\)"
    with pytest.raises(CheckpointMismatch, match=advised):
        place.start(counting(place, tens, "2"), "realtime")
    old = place.writer(counting(place)).trigger(availableNow=True).start()
    assert old.awaitTermination(90)
    place.start(counting(place, tens, "2"), "realtime")
    place.write([{"k": "a", "n": 0}] * 2)
    assert [row["n"] for row in place.await_rows(4)] == [1, 2, 12, 22]


def test_a_version_of_which_nothing_was_seen_does_not_hinder_the_old_program(place: Place) -> None:
    """It has a column and a field more, and its migrate fails: the old program goes on as if it had not been there."""
    assert run(place, counting(place), 2) == [1, 2]

    def fails(state: dict[str, Any], version: str) -> dict[str, Any]:
        raise ValueError("not yet")

    def wider(key: Any, row: Any, ctx: Any) -> Iterator[Any]:
        yield key[0], 0, "x"

    new = counting(place, wider, "2", output="k string, n long, extra string", migrate=fails)
    query = place.start(new)
    place.write([{"k": "a", "n": 0}] * 2)
    with pytest.raises(UserFunctionError, match="not yet"):
        query.awaitTermination()
    place.stop()
    report = place.writer(counting(place)).explain_upgrade()
    assert (report.refused, report.changes) == (None, ())
    assert run(place, counting(place), 6) == [1, 2, 3, 4, 5, 6]
    assert [version for _, version in Checkpoint(str(place.checkpoint)).history().schedule(2).entries] == [
        "1"
    ]


def test_the_description_says_what_it_is_bound_to(place: Place) -> None:
    run(place, counting(place), 2)
    said = json.loads((place.checkpoint / "clonos" / "query.json").read_text())["body"]["topology"]
    assert said["zone"] == place.spark.conf.get(ZONE)
    source, operator, _ = said["nodes"]
    assert source["source"] == {"kind": "clonos", "path": str(place.base / "in")}
    assert (operator["form"], operator["key_types"]) == ("process", ["string"])
