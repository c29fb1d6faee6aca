"""Where instances send to each other in cycles: no forced checkpoint too few, and the domino effect without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clonos.protocol.recovery.communication_induced.dependency_vector import DependencyVector
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.sim.models.cyclic_checkpoints import Outcome, Trace, run

TRACES = [
    Trace(seed, instances=2 + seed % 5, checkpoints=(0.05, 0.1, 0.3)[seed % 3], most_together=1 + seed % 3)
    for seed in range(150)
]


def outcomes(recovery: RecoveryKind) -> list[Outcome]:
    return [run(trace, recovery) for trace in TRACES]


def test_no_communication_induced_checkpoint_is_useless() -> None:
    found = outcomes(RecoveryKind.COMMUNICATION_INDUCED)
    assert sum(each.useless for each in found) == 0
    assert sum(each.forced for each in found) > 1_000


@pytest.mark.parametrize("storing_first", [1, 2, 100])
def test_none_is_useless_beside_instances_that_store_before_they_send(storing_first: int) -> None:
    """Of these checkpoints those count that are kept. Their processes may be lost, and replaced alone."""
    found = [
        run(replace(trace, storing_first=storing_first), RecoveryKind.COMMUNICATION_INDUCED)
        for trace in TRACES
    ]
    assert sum(each.useless for each in found) == 0
    assert sum(each.forced for each in found) > 1_000


def test_a_process_that_replaces_a_lost_one_does_not_know_what_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it takes all its readers to have been sent rows; else some checkpoint would be useless."""
    monkeypatch.setattr(ForcedCheckpoints, "_readers", 0)
    found = [run(replace(trace, storing_first=2), RecoveryKind.COMMUNICATION_INDUCED) for trace in TRACES]
    assert sum(each.useless for each in found) > 0


def test_uncoordinated_ones_are_useless_and_a_failure_leads_far_back() -> None:
    """What the other test would not see, it has: most of these checkpoints are on no line."""
    alone, induced = outcomes(RecoveryKind.UNCOORDINATED), outcomes(RecoveryKind.COMMUNICATION_INDUCED)
    assert sum(each.useless for each in alone) > sum(each.taken for each in alone) / 2
    assert sum(each.forced for each in alone) == 0
    lost, kept = (sum(each.lost_deliveries for each in found) for found in (alone, induced))
    assert kept < lost / 3
    assert sum(each.deliveries for each in alone) == sum(each.deliveries for each in induced)


def test_what_rides_along_grows_with_the_instances() -> None:
    few, many = (
        run(Trace(1, instances=count), RecoveryKind.COMMUNICATION_INDUCED).riding_bytes for count in (4, 64)
    )
    assert many > 4 * few


def _without_the_first_condition(vector: DependencyVector) -> DependencyVector:
    return replace(vector, greater=0)


def _without_the_second_condition(vector: DependencyVector) -> DependencyVector:
    return replace(vector, taken=0)


@pytest.mark.parametrize("blinded", [_without_the_first_condition, _without_the_second_condition])
def test_each_condition_is_needed(
    blinded: Callable[[DependencyVector], DependencyVector], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ForcedCheckpoints._is_forced_by

    def is_forced_by(self: ForcedCheckpoints, vectors: list[DependencyVector]) -> bool:
        return real(self, [blinded(vector) for vector in vectors])

    monkeypatch.setattr(ForcedCheckpoints, "_is_forced_by", is_forced_by)
    assert sum(each.useless for each in outcomes(RecoveryKind.COMMUNICATION_INDUCED)) > 0


def test_a_checkpoint_behind_the_row_that_forces_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ForcedCheckpoints.arrive
    monkeypatch.setattr(ForcedCheckpoints, "arrive", lambda self, bundle: reversed(list(real(self, bundle))))
    assert sum(each.useless for each in outcomes(RecoveryKind.COMMUNICATION_INDUCED)) > 0
