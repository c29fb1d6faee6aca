"""Errors of a running query are ours and Spark's."""

from __future__ import annotations

import copy
import pickle

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from clonos import errors
from clonos.api.query_error import as_sparks_own
from clonos.errors import ClonosError, UserFunctionError, Where
from clonos.protocol.roles.restart_policy import QueryFailed
from clonos.spark.failure import SessionStopped

WHERE = Where("review", 1, 4)
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ClonosError)]


@pytest.mark.parametrize("kind", [*KINDS, QueryFailed, SessionStopped], ids=lambda kind: kind.__name__)
def test_an_error_is_of_both_kinds_and_says_the_same(kind: type[ClonosError]) -> None:
    error = kind("it went wrong", where=WHERE, hint="Do this")
    text, retryable = str(error), error.retryable
    assert as_sparks_own(error) is error and as_sparks_own(error) is error
    assert isinstance(error, kind) and isinstance(error, StreamingQueryException)
    assert (str(error), error.message, error.where, error.hint) == (text, "it went wrong", WHERE, "Do this")
    assert error.retryable == retryable and type(error).__name__ == kind.__name__
    assert repr(error) == repr(kind("it went wrong", where=WHERE, hint="Do this"))


def test_it_is_caught_as_spark_users_catch_it_and_answers_as_sparks_own() -> None:
    with pytest.raises(PySparkException) as caught:
        raise as_sparks_own(UserFunctionError("it raised", where=WHERE))
    error = caught.value
    assert error.getCondition() == "STREAM_FAILED" and error.getMessageParameters() == {}
    assert error.getMessage() == "[STREAM_FAILED] it raised (operator 'review', instance 1, epoch 4)"
    assert error.getSqlState() is None and error.getQueryContext() == []


def test_it_can_be_copied_and_sent() -> None:
    error = as_sparks_own(UserFunctionError("it raised", where=WHERE, hint="Mend it"))
    for again in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert isinstance(again, UserFunctionError) and isinstance(again, StreamingQueryException)
        assert str(again) == str(error) and again.where == WHERE
    placed = as_sparks_own(UserFunctionError("it raised")).at(WHERE)
    assert isinstance(placed, UserFunctionError) and placed.where == WHERE
