"""What a query leaves in its archive is repeated at a desk, whatever died while it ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos import cli
from clonos.errors import QueryDefinitionError

pytestmark = pytest.mark.spark

SCHEMA = "k string, n long"
SEEN = "k string, n long, turn long, drawn double, at long, told string"
SUMMED = "k string, turns long, total double"


def ask(n: int) -> str:
    """A service that never says the same again."""
    import os

    return os.urandom(4).hex()


def see(key: Any, row: Any, ctx: Any) -> Any:
    turn = ctx.state["turn"] = ctx.state.get("turn", 0) + 1
    ctx.state["drawn"] = ctx.random.random()
    if turn == 1:
        ctx.timer(at=ctx.now_us() + 1, name="soon")
    yield row.k, row.n, turn, ctx.state["drawn"], ctx.now_us(), ctx.call(ask, row.n)


def soon(key: Any, timer: Any, ctx: Any) -> None:
    ctx.state["fired"] = ctx.now_us()


def total(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["turns"] = ctx.state.get("turns", 0) + 1
    ctx.state["total"] = ctx.state.get("total", 0.0) + row.drawn
    yield row.k, ctx.state["turns"], ctx.state["total"]


def start(place: Place, mode: str, **options: Any) -> Any:
    seen = place.causal(SCHEMA).groupBy("k").process(see, SEEN, name="see", on_timer=soon, **options)
    return place.start(seen.groupBy("k").process(total, SUMMED, name="total"), mode)


def end_epoch(place: Place) -> None:
    """Stop the query behind the commit of what is visible."""
    last = int(place.query.causal_status()["replicas"][0]["epoch"])
    assert place.query.wait_for_epoch(last, 120)
    place.stop()


def verified(
    place: Place, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0
) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert cli.main(["archive", "verify", str(place.checkpoint), "--json", *more]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def states(place: Place, capsys: pytest.CaptureFixture[str], operator: str, at: object) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["state", str(place.checkpoint), "--operator", operator, "--at", str(at), "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {one["key"][0]: one["state"] for one in said}


def explained(place: Place, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]]) -> None:
    """Each row is made of what it says itself, and that of the records that were fed."""
    for row in rows:
        capsys.readouterr()
        assert cli.main(["explain", str(place.checkpoint), row["clonos_id"], "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["row"] == {name: value for name, value in row.items() if name != "clonos_id"}
        assert said["operator"] == "total" and said["keys"] == [[row["k"]]]
        (state,) = said["state"]
        assert (state["before"] or {"turns": 0})["turns"] == row["turns"] - 1
        assert state["after"] == {"turns": row["turns"], "total": row["total"]}
        (seen,) = said["inputs"]
        made = seen["made_by"]
        assert made["row"] == seen["row"] and made["operator"] == "see"
        drawn, told = seen["row"]["drawn"], seen["row"]["told"]
        assert [one["given"] for one in made["asked"] if one["kind"] == "draw"] == [drawn]
        (call,) = [one for one in made["asked"] if one["kind"] == "call"]
        assert call["what"] == f"ask({seen['row']['n']})" and call["given"] == told
        (fed,) = made["inputs"]
        assert fed["row"] == {"k": row["k"], "n": seen["row"]["n"]} and "made_by" not in fed


@pytest.mark.parametrize("mode", ["microbatch", "realtime"])
@pytest.mark.parametrize("standby", ["none", "hot"])
def test_all_of_it_is_repeated_to_the_byte(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str, standby: str
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    written = 0

    def write_and_await() -> None:
        nonlocal written
        place.write({"k": f"k{at % 7}", "n": at} for at in range(written, written + 60))
        written += 60
        place.await_rows(written)

    start(place, mode, standby=standby)
    for _ in range(2):
        write_and_await()
        for node in (2, 3):
            place.kill(node, 0)
        write_and_await()
    end_epoch(place)
    start(place, mode, standby=standby)  # as another program, for all that the archive knows
    write_and_await()
    end_epoch(place)
    results = verified(place, capsys)
    assert all(result["repeated"] for result in results), results
    for operator in ("see", "total"):
        assert sum(result["records"] for result in results if result["operator"] == operator) == written
    last = max(result["epoch"] for result in results)
    told = states(place, capsys, "total", last)
    seen = {row["k"]: row for row in place.rows()}  # the last of each key
    assert {key: (state["turns"], state["total"]) for key, state in told.items()} == {
        key: (row["turns"], row["total"]) for key, row in seen.items()
    }
    explained(place, capsys, place.rows()[-20:])
    assert all(state["fired"] for state in states(place, capsys, "see", last).values())


def test_what_is_not_recorded_is_not_archived(place: Place) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.recovery", "eager")
    with pytest.raises(QueryDefinitionError, match="not all operators record what they do"):
        start(place, "realtime")


def test_a_checkpoint_without_one_says_so(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    start(place, "microbatch")
    place.write([{"k": "a", "n": 1}])
    place.await_rows(1)
    place.stop()
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 1
    assert "spark.clonos.archive.keep" in capsys.readouterr().err
    assert not Path(place.checkpoint, "clonos", "archive").exists()
