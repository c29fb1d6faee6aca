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
from clonos.protocol.roles.restart_policy import (
    LONGEST_BACKOFF_SECONDS,
    QueryFailed,
    Restart,
    RestartPolicy,
    cause_of,
    may_resume,
    named,
)

LOST = ReplicaLost("its process is gone")


def policy(*, repeats_output: bool = False) -> RestartPolicy:
    return RestartPolicy(limit=3, backoff=1.0, progress=-1, repeats_output=repeats_output)


def test_it_is_started_again_later_and_later_and_then_not_any_more() -> None:
    rules = policy()
    assert [rules.failed(LOST, -1) for _ in range(4)] == [
        Restart(1, 1.0, False),
        Restart(2, 2.0, False),
        Restart(3, 4.0, False),
        None,
    ]


def test_an_epoch_that_commits_in_between_makes_it_the_first_failure_again() -> None:
    rules = policy()
    for epoch in range(9):
        assert rules.failed(LOST, epoch) == Restart(1, 1.0, False)


def test_no_restart_waits_longer_than_the_longest_back_off() -> None:
    rules = RestartPolicy(limit=3_000, backoff=20.0, progress=-1)
    pauses = {again.pause for _ in range(3_000) if (again := rules.failed(LOST, -1)) is not None}
    assert pauses == {20.0, LONGEST_BACKOFF_SECONDS}


@pytest.mark.parametrize("error", [UserFunctionError("ValueError"), DivergenceError("it differs")])
def test_what_would_fail_again_ends_the_query(error: ClonosError) -> None:
    assert policy().failed(error, -1) is None


def test_a_gap_is_gone_on_behind_where_the_user_says_so() -> None:
    assert policy().failed(GapError("it is gone"), -1) is None
    assert policy(repeats_output=True).failed(GapError("it is gone"), -1) == Restart(1, 1.0, True)


def test_the_cause_is_what_cannot_be_mended() -> None:
    reason = UserFunctionError("ValueError")
    assert cause_of([LOST, reason, QueryFailed("a task was lost")]) is reason
    assert cause_of([LOST]) is LOST
    assert cause_of([]) is None


def test_a_replica_that_was_overtaken_is_not_the_cause() -> None:
    assert cause_of([Fenced("there is a newer one")]) is None
    assert cause_of([Fenced("there is a newer one"), LOST]) is LOST


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
