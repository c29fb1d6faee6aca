"""The simple recoveries: where each holds, and the shortest execution that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos import cli
from clonos.sim.models.diagram import drawn
from clonos.sim.models.execution import Function, Identity, World
from clonos.sim.models.expectations import HOLDS, WORLDS, show
from clonos.sim.models.search import outcomes, shortest_break

SIMPLE = [Identity.LINEAGE, Identity.COUNTER, Identity.CHANNEL_COUNTER]
LINEAGE_BREAKS = """\
process                                     receiver 1                receiver 2
------------------------------------------  ------------------------  ------------------------
takes a1, sends a1 (the 1st) as a1 ->       sees a1 (the 1st)
XX is lost; back to the beginning
takes b1, sends b1 (the 1st) as b1 ---->                              sees b1 (the 1st)
takes a1, sends a1 (the 2nd) as a1 ->       has had a1

wrong: no run without a failure shows these rows together"""
COUNTERS_BREAK = """\
process                                     receiver 1                receiver 2
------------------------------------------  ------------------------  ------------------------
takes a1, sends a1 as 1 ->                  sees a1
XX is lost; back to the beginning
takes b1, sends b1 as 1 ---->                                         sees b1
takes a1, sends a1 as 2 ->                  sees a1

wrong: a1 is seen twice"""
CHANNEL_COUNTERS_BREAK = """\
process                                     receiver 1                receiver 2
------------------------------------------  ------------------------  ------------------------
takes a1, sends a1 (drew 0) as 1 ->         sees a1 (drew 0)
XX is lost; back to the beginning
takes a1, sends a1 (drew 1) as 1 ---->                                sees a1 (drew 1)
takes a2, sends a2 (drew 0) as 1 ->         has had 1

wrong: a2 is lost, and a1 is seen twice"""


@pytest.mark.parametrize("identity", Identity)
def test_each_holds_where_it_is_said_to_and_breaks_elsewhere(identity: Identity) -> None:
    for shown in show(identity):
        assert shown.is_expected, shown
        assert shown.broken is None or len(shown.broken.steps) == 4


@pytest.mark.parametrize("identity", Identity)
def test_it_holds_with_more_records_and_crashes_too(identity: Identity) -> None:
    for world in HOLDS[identity]:
        assert shortest_break(World(world.function, world.sources, 2), identity, crashes=2) is None


@pytest.mark.parametrize(
    ("identity", "world", "picture"),
    [
        (Identity.LINEAGE, World(Function.COUNT, 2, 1), LINEAGE_BREAKS),
        (Identity.COUNTER, World(Function.MAP, 2, 1), COUNTERS_BREAK),
        (Identity.CHANNEL_COUNTER, World(Function.DRAW, 1, 2), CHANNEL_COUNTERS_BREAK),
    ],
)
def test_the_shortest_execution_is_drawn(identity: Identity, world: World, picture: str) -> None:
    broken = shortest_break(world, identity)
    assert broken is not None and drawn(broken) == picture


@pytest.mark.parametrize("identity", Identity)
def test_without_a_crash_none_breaks(identity: Identity) -> None:
    for world in WORLDS:
        assert shortest_break(world, identity, crashes=0) is None


def test_runs_without_a_failure_differ_where_the_function_does() -> None:
    assert [len(outcomes(world)) for world in WORLDS] == [1, 1, 4, 1, 2, 6]


def test_the_command_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "--recovery", "counters", "--draw"]) == 0
    said = capsys.readouterr().out
    assert "counters, one source, a function that counts: holds in every execution" in said
    assert COUNTERS_BREAK in said
    picture = tmp_path / "breaks.txt"
    assert cli.main(["simulate", "--recovery", "lineage", "--draw", str(picture)]) == 0
    assert LINEAGE_BREAKS in picture.read_text()
    capsys.readouterr()
    assert cli.main(["simulate", "--recovery", "recorded"]) == 0
    assert "breaks" not in capsys.readouterr().out
    assert cli.main(["simulate", "--draw"]) == 1
    assert "--draw FILE" in capsys.readouterr().err
