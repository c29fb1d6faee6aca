"""What a driver makes of the end of its Spark query."""

from __future__ import annotations

import pytest

from clonos.errors import (
    ClonosError,
    DivergenceError,
    Fenced,
    GapError,
    ReplicaLost,
    ResumeFailed,
    UserFunctionError,
)
from clonos.protocol.ids import Epoch, InstanceId, NodeId, Origin
from clonos.protocol.line.positions import Positions
from clonos.protocol.roles.restart_policy import (
    LONGEST_BACKOFF_SECONDS,
    Failure,
    QueryFailed,
    Restart,
    RestartPolicy,
    cause_of,
    may_resume,
    named,
)

LOST = ReplicaLost("its process is gone")
POISONED, OTHER, THIRD = (Origin(NodeId(2), InstanceId(at)) for at in range(3))
START = Positions(Epoch(1), {POISONED: 40, OTHER: 7})


def policy(*, repeats_output: bool = False) -> RestartPolicy:
    return RestartPolicy(limit=3, backoff=1.0, repeats_output=repeats_output)


def fail(
    rules: RestartPolicy,
    origin: Origin | None = None,
    *,
    committed: int = 0,
    began: Positions = START,
    error: ClonosError = LOST,
) -> Restart | None:
    return rules.failed(Failure(error, origin), Epoch(committed), began)


def counts(restarts: list[Restart | None]) -> list[int | None]:
    return [None if again is None else again.failures for again in restarts]


@pytest.mark.parametrize("origin", [None, POISONED])
def test_it_is_started_again_later_and_later_and_then_not_any_more(origin: Origin | None) -> None:
    rules = policy()
    assert [fail(rules, origin) for _ in range(4)] == [
        Restart(1, 1.0, False),
        Restart(2, 2.0, False),
        Restart(3, 4.0, False),
        None,
    ]


def test_an_epoch_that_commits_in_between_makes_it_the_first_failure_again() -> None:
    rules = policy()
    for epoch in range(9):
        assert fail(rules, committed=epoch) == Restart(1, 1.0, False)


def test_how_far_others_come_does_not_help_an_instance_that_fails_at_the_same_place_again() -> None:
    rules = policy()
    starts = [Positions(Epoch(1), {POISONED: 40, OTHER: at}) for at in range(4)]
    assert counts([fail(rules, POISONED, began=began) for began in starts]) == [1, 2, 3, None]


def test_an_instance_that_gets_further_fails_for_another_reason() -> None:
    rules = policy()
    starts = [Positions(Epoch(1), {POISONED: at, OTHER: 7}) for at in (0, 40, 40, 60, 60, 60, 60)]
    assert counts([fail(rules, POISONED, began=began) for began in starts]) == [1, 1, 2, 1, 2, 3, None]


def test_two_that_fail_in_turn_are_counted_each() -> None:
    rules = policy()
    failing = [POISONED, OTHER, POISONED, OTHER, POISONED, OTHER, POISONED]
    starts = [Positions(Epoch(1), {POISONED: 40, OTHER: 7, THIRD: at}) for at in range(7)]
    restarts = [fail(rules, origin, began=began) for origin, began in zip(failing, starts, strict=True)]
    assert counts(restarts) == [1, 1, 2, 2, 3, 3, None]


def test_whichever_instance_says_that_it_fails_a_query_that_gets_no_further_ends() -> None:
    rules = policy()
    failing = [Origin(NodeId(2), InstanceId(at)) for at in range(4)]
    assert counts([fail(rules, origin) for origin in failing]) == [1, 2, 3, None]


def test_a_failure_that_is_of_no_instance_counts_while_no_instance_gets_further() -> None:
    rules = policy()
    starts = [Positions(Epoch(1), {POISONED: at}) for at in (0, 1, 2, 2, 2, 2)]
    assert counts([fail(rules, began=began) for began in starts]) == [1, 1, 1, 2, 3, None]


def test_no_restart_waits_longer_than_the_longest_back_off() -> None:
    rules = RestartPolicy(limit=3_000, backoff=20.0)
    pauses = {again.pause for _ in range(3_000) if (again := fail(rules)) is not None}
    assert pauses == {20.0, LONGEST_BACKOFF_SECONDS}


@pytest.mark.parametrize("error", [UserFunctionError("ValueError"), DivergenceError("it differs")])
def test_what_would_fail_again_ends_the_query(error: ClonosError) -> None:
    assert fail(policy(), error=error) is None


def test_a_gap_is_gone_on_behind_where_the_user_says_so() -> None:
    gap = GapError("it is gone")
    assert fail(policy(), error=gap) is None
    assert fail(policy(repeats_output=True), error=gap) == Restart(1, 1.0, True)


def test_the_cause_is_what_cannot_be_mended() -> None:
    reason = UserFunctionError("ValueError")
    told = [Failure(LOST), Failure(reason, POISONED), Failure(QueryFailed("a task was lost"))]
    assert cause_of(told) == Failure(reason, POISONED)
    assert cause_of([Failure(LOST)]) == Failure(LOST)
    assert cause_of([]) is None


def test_a_replica_that_was_overtaken_is_not_the_cause() -> None:
    fenced = Failure(Fenced("there is a newer one"), POISONED)
    assert cause_of([fenced]) is None
    assert cause_of([fenced, Failure(LOST, OTHER)]) == Failure(LOST, OTHER)


def test_who_could_not_resume_begins_behind_the_last_epoch() -> None:
    assert may_resume([])
    assert may_resume([ReplicaLost.__name__])
    assert not may_resume([ReplicaLost.__name__, ResumeFailed.__name__])


def test_nothing_is_gone_on_with_of_a_history_that_was_given_up() -> None:
    """Also where its successor has not got so far as to begin, and the one after that has a higher number."""
    assert not may_resume([], given_up=5, last_begun=4)
    assert may_resume([], given_up=5, last_begun=6)


def test_an_error_goes_by_its_name() -> None:
    assert isinstance(named("GapError", "it is gone"), GapError)
    assert isinstance(named("ReplicaFailed", "a bug"), UserFunctionError)
    assert isinstance(named("ExecutorLost", "it is gone"), QueryFailed)
