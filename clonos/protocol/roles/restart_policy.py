"""What a driver makes of the end of its Spark query: whether it starts it again, when, and where from.

A retryable failure does not end the query: it is started anew over the same checkpoint, with back-off, up to a number
of times for the same reason. An instance that fails where it has failed before does so for the same reason, however far
others have come meanwhile; and so does the query where no instance has got further, whichever one says that it fails.
Everything else ends the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from clonos import errors
from clonos.errors import ClonosError, Fenced, GapError, ResumeFailed
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.line.positions import Positions

LONGEST_BACKOFF_SECONDS: Final = 30.0
_MOST_DOUBLINGS: Final = 64
"""Of the pause, which is the longest one long before: a float ends at some thousand."""


class QueryFailed(ClonosError):
    """The Spark query failed for a reason of Spark's own."""

    retryable = True


class Failure(NamedTuple):
    """Of a start, and of which instance where one has said so."""

    error: ClonosError
    origin: Origin | None = None


@dataclass(slots=True)
class _Streak:
    """Failures in a row for the same reason: so long as what is `at` does not change."""

    failures: int = 0
    at: object = None

    def failed(self, at: object) -> int:
        self.failures = self.failures + 1 if at == self.at else 1
        self.at = at
        return self.failures


@dataclass(frozen=True, slots=True)
class Restart:
    """`failures` starts have failed by now for the same reason. `gives_up_history`: what was recorded since the last
    committed epoch is dropped first."""

    failures: int
    pause: float  # in seconds
    gives_up_history: bool


class RestartPolicy:
    """Of one query in one driver."""

    def __init__(self, *, limit: int, backoff: float, repeats_output: bool = False) -> None:
        """`repeats_output`: the user prefers repeated output to none where determinants are gone."""
        self._limit = limit
        self._backoff = backoff
        self._repeats_output = repeats_output
        self._epoch = NO_EPOCH
        self._query = _Streak()
        self._instances: dict[Origin, _Streak] = {}  # since this epoch has committed

    def failed(self, failure: Failure, committed: Epoch, began: Positions) -> Restart | None:
        """A start that `began` there has failed, or could not even be made; None: the query ends with the error.
        `committed` is the last epoch that has."""
        error, origin = failure
        if committed > self._epoch:
            self._epoch, self._query, self._instances = committed, _Streak(), {}
        count = self._query.failed(began)
        if origin is not None:
            own = self._instances.setdefault(origin, _Streak())
            count = max(count, own.failed((began.epoch, began.taken.get(origin))))
        gives_up = self._repeats_output and isinstance(error, GapError)
        if not (error.retryable or gives_up) or count > self._limit:
            return None
        doublings = min(count - 1, _MOST_DOUBLINGS)
        pause = min(self._backoff * 2.0**doublings, LONGEST_BACKOFF_SECONDS)
        return Restart(count, pause, gives_up)


def may_resume(
    failures: Collection[str], *, given_up: Generation = NO_GENERATION, last_begun: Generation = NO_GENERATION
) -> bool:
    """Whether the next start may begin inside the epoch, by the errors that instances of the last one failed with.

    Not where one of them could not go on from where it was to. Nor before a start has begun since the history was
    `given_up` under a generation (0: never); the last that has is `last_begun`.
    """
    return ResumeFailed.__name__ not in failures and last_begun >= given_up


def cause_of(failures: Iterable[Failure]) -> Failure | None:
    """Of all that a start has failed with: what cannot be mended before what can.

    In real time all stages of a query fail together, and Spark reports whichever failure it heard first: often that of
    a neighbour whose connection broke, and not the reason. That a replica is fenced is never the reason: there is a
    newer one in its place.
    """
    reasons = [failure for failure in failures if not isinstance(failure.error, Fenced)]
    return min(reasons, key=lambda failure: failure.error.retryable, default=None)


def named(name: str, message: str) -> ClonosError:
    """An error by the name of its class. A name that is none of ours is of Spark's own."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, ClonosError):
        return kind(message)
    return errors.UserFunctionError(message) if name == "ReplicaFailed" else QueryFailed(message)
