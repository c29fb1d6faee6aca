"""An archive that was off for a while: what is asked about that time is refused, and all else is answered."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from streams import Place

from clonos import cli

pytestmark = pytest.mark.spark


def turns(key: Any, row: Any, ctx: Any) -> Any:
    ctx.state["turns"] = ctx.state.get("turns", 0) + 1
    yield row.k, ctx.state["turns"], ctx.random.random()


def test_an_archive_that_was_off_for_a_while_says_so_and_goes_on(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[str] = []
    for at, keep in enumerate(["1 day", "off", "1 day"]):
        place.spark.conf.set("spark.clonos.archive.keep", keep)
        keyed = place.causal("k string, n long").groupBy("k")
        place.start(keyed.process(turns, "k string, turns long, drawn double", name="total"))
        for n in range(2):  # an epoch each
            place.write([{"k": "a", "n": 2 * at + n}])
            place.await_rows(2 * at + n + 1)
            place.await_commit()
        ends.append(dt.datetime.now(dt.UTC).isoformat())
        if at == 1:
            asked_about_times(place, capsys, ends)
        place.stop()
    asked_about_times(place, capsys, ends)
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0, (
        "also what came first when it was on again"
    )
    rows = {row["turns"]: row["clonos_id"] for row in place.rows()}
    capsys.readouterr()
    for turn, code in ((1, 0), (2, 0), (4, 1), (5, 0), (6, 0)):
        assert cli.main(["explain", str(place.checkpoint), rows[turn]]) == code, turn
    said = capsys.readouterr().out
    assert said.count("CANNOT BE HAD") == 1 and "turns=5" in said and "turns=6" in said


def asked_about_times(place: Place, capsys: pytest.CaptureFixture[str], ends: list[str]) -> None:
    """How state was when the archive was off is not what it was before."""
    capsys.readouterr()
    assert cli.main(["archive", "list", str(place.checkpoint), "--json"]) == 0
    runs = next(one["runs"] for one in json.loads(capsys.readouterr().out) if one["states"])
    last = runs[0][1]  # when the archive was turned off
    state = ["state", str(place.checkpoint), "--operator", "total", "--at"]
    assert cli.main([*state, ends[1]]) != 0
    said = capsys.readouterr().err
    assert f"of epochs {last + 1} to " in said and f"behind epoch {last}, nothing is in the archive" in said
    assert cli.main([*state, f"{last}"]) == 0, "as is advised"
    if len(ends) == 2:
        return
    (_, (first, newest)) = runs
    assert cli.main([*state, ends[2]]) == 0
    assert cli.main([*state, f"{first}"]) == 0
    capsys.readouterr()
    assert cli.main([*state, f"{first - 1}", "--json"]) == 0, "nothing but the state at its end is there"
    assert '"turns": 4' in capsys.readouterr().out, "it is not that of when the archive was turned off"
    assert cli.main([*state, f"{last + 1}"]) != 0
    assert f"epochs {first} to {newest}." in capsys.readouterr().err
    find = ["archive", "find", str(place.checkpoint), "--operator", "total", "k=a"]
    assert cli.main([*find, "--to", ends[1]]) != 0
    assert "nothing is in the archive" in capsys.readouterr().err
    for span in (["--from", ends[0]], []):
        cli.main([*find, *span])
        assert f"epochs {last + 1} to {first - 1}" in capsys.readouterr().err, span
