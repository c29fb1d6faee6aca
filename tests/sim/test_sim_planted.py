"""The simulator's alarm works: every planted bug is found, within a stated number of seeds."""

from __future__ import annotations

import pytest
from planted import PLANTED as EPOCHS
from planted_again import AGAIN
from planted_archive import ARCHIVE
from planted_batches import BATCHES
from planted_beside_causal import BESIDE_CAUSAL
from planted_calls import CALLS
from planted_commits import COMMITS
from planted_coordinated import COORDINATED
from planted_counters import COUNTERS
from planted_disks import DISKS
from planted_eager import EAGER
from planted_event_log import EVENT_LOG
from planted_event_time import EVENT_TIME
from planted_fan_out import FAN_OUT
from planted_fencing import FENCING
from planted_holders import HOLDING
from planted_identity import IDENTITY
from planted_incarnation import STARTING
from planted_induced import INDUCED
from planted_ingestion import INGESTION
from planted_leaders import LEADERS
from planted_line import RESUMING
from planted_mixed import MIXED
from planted_poison import POISON
from planted_programs import CHANGING
from planted_rounds import ROUNDS
from planted_sinks import SINKS
from planted_switches import SWITCHES
from planted_unaligned import UNALIGNED
from planted_uncoordinated import UNCOORDINATED
from planted_values import VALUES
from planted_world import WORLD

from clonos.sim import run as simulated
from clonos.sim.plan import draw_plan
from clonos.sim.run import run

PLANTED = {
    **EPOCHS,
    **RESUMING,
    **STARTING,
    **WORLD,
    **IDENTITY,
    **CHANGING,
    **HOLDING,
    **DISKS,
    **COUNTERS,
    **BATCHES,
    **VALUES,
    **COMMITS,
    **LEADERS,
    **FENCING,
    **POISON,
    **SWITCHES,
    **FAN_OUT,
    **SINKS,
    **EVENT_TIME,
    **CALLS,
    **ARCHIVE,
    **INGESTION,
    **COORDINATED,
    **UNCOORDINATED,
    **EAGER,
    **MIXED,
    **AGAIN,
    **INDUCED,
    **UNALIGNED,
    **EVENT_LOG,
    **BESIDE_CAUSAL,
    **ROUNDS,
}


DRAINED_WITHIN = 90_000
"""Events, fewer than other runs may take: after some bugs a run never ends. The run without the bug has to, too."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "DRAINED_WITHIN", DRAINED_WITHIN)


def test_the_catalogue_is_long_enough() -> None:
    assert len(PLANTED) >= 140


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a run that is right without it. One that takes longer than runs may here shows nothing."""
    bug = PLANTED[name]
    for seed in range(bug.first, bug.first + bug.seeds):
        plan = bug.plan(draw_plan(seed))
        with monkeypatch.context() as patch:
            bug.plant(patch)
            is_wrong = not run(plan).right
        if is_wrong and (without := run(plan)).right:
            return
        assert not is_wrong or "not everything is out" in str(without), "it is wrong without the bug, too"
    pytest.fail(f"{bug.seeds} seeds did not find that {name.replace('_', ' ')}")
