"""The oracle can fail: without the recording of any one kind of outcome, or without a deduplication, it does.

And without the oracle's help: as long as the divergence detection is there, it stops the query first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_, await_end, run, running

from clonos.errors import DivergenceError, ProtocolError
from clonos.spark.coordinator import Coordinator
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

# Which operator of the job draws on which kind; order shows when a task, and not just a replica, is replaced.
USED_BY = {"clocks": "first", "seeds": "first", "calls": "second", "instants": "second"}


def struck_at(point: Point, strike: Strike, operator: str, after: int = 60) -> str:
    return script(Fault(point=point, strike=strike, operator=operator, after=after))


def with_much_order(base: Path) -> Run:
    """Channels have taken turns often by the time it is struck: a forgotten order is not hit upon by chance."""
    return Run(
        base,
        mode="realtime",
        count=1200,
        faults=struck_at(Point.AFTER_COMMIT, Strike.TASK, "sink", after=200),
        settings={"bundle.rows": "10"},
    )


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes replica processes run something else."""
    return lambda name: monkeypatch.setattr(Coordinator, "_entry", f"sabotage:{name}")


@pytest.mark.parametrize("kind", USED_BY)
def test_without_a_recording_the_replay_is_reported(
    spark: Any, tmp_path: Path, entry: Any, kind: str
) -> None:
    entry(f"no_{kind}")
    setup = Run(tmp_path, mode="realtime", faults=struck_at(Point.INPUT, Strike.REPLICA, USED_BY[kind]))
    with running(spark, setup) as query, pytest.raises(DivergenceError):
        await_end(query, setup)
    assert not query.restarts


@pytest.mark.parametrize("kind", USED_BY)
def test_without_a_recording_the_oracle_fails(spark: Any, tmp_path: Path, entry: Any, kind: str) -> None:
    entry(f"blind_no_{kind}")
    setup = Run(tmp_path, mode="realtime", faults=struck_at(Point.INPUT, Strike.REPLICA, USED_BY[kind]))
    run(spark, setup)
    assert not exact(setup)


def test_without_the_order_the_oracle_fails(spark: Any, tmp_path: Path, entry: Any) -> None:
    entry("blind_no_order")
    setup = with_much_order(tmp_path)
    run(spark, setup)
    assert not exact(setup)


def test_without_the_order_the_replay_is_reported(spark: Any, tmp_path: Path, entry: Any) -> None:
    entry("no_order")
    setup = with_much_order(tmp_path)
    with running(spark, setup) as query, pytest.raises(DivergenceError):
        await_end(query, setup)


def test_blindness_alone_changes_nothing(spark: Any, tmp_path: Path, entry: Any) -> None:
    """So it is the missing recording that the oracle finds above."""
    entry("only_blind")
    run(
        spark,
        setup := Run(tmp_path, mode="realtime", faults=struck_at(Point.INPUT, Strike.REPLICA, "second")),
    )
    assert_exact(setup)


def test_without_the_cursor_the_oracle_fails(spark: Any, tmp_path: Path, entry: Any) -> None:
    entry("no_cursor")
    setup = Run(tmp_path, mode="realtime", faults=struck_at(Point.AFTER_COMMIT, Strike.REPLICA, "sink"))
    run(spark, setup)
    one, _ = setup.judge()
    assert one.repeated > 0


def test_what_is_handed_on_twice_is_refused(spark: Any, tmp_path: Path, entry: Any) -> None:
    """The conduit does not take the operator's word for it."""
    entry("no_emitted_output")
    setup = Run(tmp_path, mode="realtime", faults=struck_at(Point.INPUT, Strike.REPLICA, "first"))
    with running(spark, setup) as query, pytest.raises(ProtocolError, match="emitted already"):
        await_(query, setup, lambda: False)


def exact(setup: Run) -> bool:
    return all(verdict.exact for verdict in setup.judge())
