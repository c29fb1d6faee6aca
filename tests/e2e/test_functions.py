"""User functions that go wrong: a clear end where it must end, and nothing lost; the mended query continues exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_functions import (
    At,
    Crashes,
    CrashesAfterAnEffect,
    Exits,
    KillsItself,
    Loops,
    Raises,
    draws_random,
    reads_clock,
)
from ledger_job import LATER, Run, assert_exact, await_end, first, run, running
from modes import in_soak, in_turns, mostly

from clonos.errors import ClonosError, DivergenceError, PoisonRecord, UserFunctionError
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.testing.faults import Fault, Point, Strike, script
from clonos.tools.log.dead_letter_replay import replay_letter
from clonos.tools.log.reading import read

pytestmark = pytest.mark.spark

BAD = "411"  # the id of the record at which functions go wrong: in the second half, after an epoch has committed
PLACE = r"operator 'first', instance [01], epoch \d+, channel from node 1, partition [01], position \d+"


def end_of(spark: Any, setup: Run, kind: type[ClonosError], pattern: str = PLACE) -> Any:
    """The query ends with this error, and is not started again before it does."""
    with running(spark, setup) as query, pytest.raises(kind, match=pattern) as caught:
        await_end(query, setup)
    assert not query.restarts
    assert query.exception() is caught.value
    assert 0 < setup.visible() < setup.count
    return caught.value


def mend(spark: Any, setup: Run) -> None:
    """With a good function in its place the query continues, and nothing shows what has happened."""
    setup.first, setup.faults = first, ""
    run(spark, setup)
    assert_exact(setup)


CAUSES = {reads_clock: "mentions time.time_ns", draws_random: "mentions random.getrandbits"}


@pytest.mark.parametrize(("function", "mode"), in_turns(CAUSES, lambda function: function.__name__))
def test_unrecorded_outcomes_are_found_out(
    spark: Any, tmp_path: Path, mode: str, function: Callable[..., Any]
) -> None:
    fault = Fault(point=Point.INPUT, strike=Strike.REPLICA, operator="first", asked=LATER, after=20)
    error = end_of(spark, Run(tmp_path, mode=mode, first=function, faults=script(fault)), DivergenceError)
    assert "digest" in str(error) and CAUSES[function] in str(error) and "ctx." in str(error)
    assert "spark.clonos.intercept to true" in str(error), "tests/e2e/test_intercept.py follows it"


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_an_exception_ends_the_query(spark: Any, tmp_path: Path, mode: str) -> None:
    setup = Run(tmp_path, mode=mode, first=Raises(BAD))
    error = end_of(spark, setup, UserFunctionError)
    assert "LookupError" in str(error) and "no such street" in str(error) and "bad_functions.py" in str(error)
    assert "Traceback" in str(error) and error.__cause__ is None, "docs/stateful-apis.md says where it is"
    mend(spark, setup)


@pytest.mark.parametrize(
    ("kind", "mode"),
    in_turns([Exits, KillsItself], lambda kind: kind.__name__)
    + in_soak([Crashes], lambda kind: kind.__name__),
)
def test_a_record_that_ends_every_process_is_named(
    spark: Any, tmp_path: Path, mode: str, kind: type[At]
) -> None:
    setup = Run(tmp_path, mode=mode, first=kind(BAD), settings={"replica.attempts": "4"})
    error = end_of(spark, setup, PoisonRecord)
    assert "ended 2 processes in a row" in str(error)
    # Spark's own attempts of a task find the mark, and do not run the record
    assert len(setup.deaths()) <= 4 + 4
    mend(spark, setup)


@pytest.mark.parametrize(
    ("mode", "kind", "signal"),
    [("microbatch", CrashesAfterAnEffect, "SIGSEGV"), ("realtime", KillsItself, "SIGKILL")],
)
def test_a_record_that_ends_every_process_is_passed_over_and_kept(
    spark: Any, tmp_path: Path, mode: str, kind: type[At], signal: str
) -> None:
    setup = Run(tmp_path, mode=mode, first=kind(BAD), on_poison="dead_letter", passed_over=(BAD,))
    query = run(spark, setup)
    assert_exact(setup)
    assert not query.restarts
    (letter,) = setup.dead_letters()
    assert letter.table().to_pylist() == [{"k": letter.key[0], "id": BAD}]
    assert [death["signal"] for death in letter.deaths] == [signal, signal]
    (state,) = letter.state.values()
    links = [row for row in setup.rows("a_key, a_n, id, a_hash") if row[0] == letter.key[0]]
    assert [row[3] for row in links if row[1] == state["n"]] == [state["hash"]]
    (step,) = decode_steps(letter.recorded, 0)
    assert [effect.key for effect in step.effects] == (["told"] if kind is CrashesAfterAnEffect else [])
    assert len(step.calls) == len(step.effects)
    assert replay_letter(letter, first)["ended"] == ("diverges" if step.effects else "got through")
    stores = [path for path in setup.data.glob("logs/*/*") if path.is_dir()]  # beside marks of who has acted
    logs = [read(path) for path in stores]
    assert len(logs) == 4 and not [problem for log in logs for problem in log.problems]


@pytest.mark.parametrize(
    ("standby", "mode"),
    [
        ("none", "realtime"),
        ("hot", "microbatch"),
        pytest.param("passive", "realtime", marks=pytest.mark.soak),
    ],
)
def test_records_one_behind_the_other_that_end_every_process_are_passed_over(
    spark: Any, tmp_path: Path, standby: str, mode: str
) -> None:
    function = KillsItself(BAD, also=tuple(str(int(BAD) + at) for at in range(1, 9)))
    setup = Run(tmp_path, mode=mode, first=function, on_poison="dead_letter")
    setup.passed_over = (function.id, *function.also)
    setup.settings = {"standby": standby}
    query = run(spark, setup)
    assert_exact(setup)
    assert not query.restarts
    letters = setup.dead_letters()
    assert {row["id"] for letter in letters for row in letter.table().to_pylist()} == {*setup.passed_over}
    assert len(letters) == len(setup.passed_over)


def test_a_crash_that_does_not_come_again_is_survived(spark: Any, tmp_path: Path) -> None:
    setup = Run(tmp_path, mode="realtime", first=Crashes(BAD, str(tmp_path / "once")))
    query = run(spark, setup)
    assert_exact(setup)
    assert [death["signal"] for death in setup.deaths()] == ["SIGSEGV"]
    assert not query.restarts
    assert not list((setup.data / "replicas").glob("*.suspect"))


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_a_function_that_hangs_once_is_replaced(spark: Any, tmp_path: Path, mode: str) -> None:
    function = Loops(BAD, str(tmp_path / "once"))
    query = run(
        spark, setup := Run(tmp_path, mode=mode, first=function, settings={"function.deadline": "5s"})
    )
    assert_exact(setup)
    assert not query.restarts
    (death,) = setup.deaths()
    assert death["code"] == 71
    assert "no progress" in death["stderr"] and "go_wrong" in death["stderr"]


def test_a_function_that_hangs_each_time_is_named(spark: Any, tmp_path: Path) -> None:
    setup = Run(tmp_path, mode="realtime", first=Loops(BAD), settings={"function.deadline": "5s"})
    error = end_of(spark, setup, PoisonRecord)
    assert "no progress for 5 s" in str(error)
    mend(spark, setup)


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_process_that_hangs_is_replaced(spark: Any, tmp_path: Path, mode: str) -> None:
    """Stopped by a signal, it cannot even show that it lives."""
    fault = Fault(point=Point.INPUT, strike=Strike.STOP, operator="second", asked=LATER, after=20)
    query = run(
        spark,
        setup := Run(tmp_path, mode=mode, faults=script(fault), settings={"replica.deadline": "5s"}),
    )
    assert_exact(setup)
    assert not query.restarts
    assert [death["kind"] for death in setup.deaths()] == ["hang"]
