"""What a driver makes of the end of its Spark query: whether it starts it again, when, and where from.

A retryable failure does not end the query: it is started anew over the same checkpoint, with back-off, up to a number
of times without progress in between: an epoch that commits, or a round of checkpoints that is complete. Everything else
ends it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from clonos import errors
from clonos.errors import ClonosError, Fenced, GapError, ResumeFailed
from clonos.protocol.fence import NO_GENERATION, Generation

LONGEST_BACKOFF_SECONDS: Final = 30.0
_MOST_DOUBLINGS: Final = 64
"""Of the pause, which is the longest one long before: a float ends at some thousand."""


class QueryFailed(ClonosError):
    """The Spark query failed for a reason of Spark's own."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Restart:
    """`failures` starts in a row have failed by now. `gives_up_history`: what was recorded since the last committed
    epoch is dropped first."""

    failures: int
    pause: float  # in seconds
    gives_up_history: bool


class RestartPolicy:
    """Of one query in one driver."""

    def __init__(self, *, limit: int, backoff: float, progress: int, repeats_output: bool = False) -> None:
        """`progress` grows with what is never done again: with causal logging the last epoch that has committed.
        `repeats_output`: the user prefers repeated output to none where determinants are gone."""
        self._limit = limit
        self._backoff = backoff
        self._progress = progress
        self._repeats_output = repeats_output
        self._failures = 0

    def failed(self, error: ClonosError, progress: int) -> Restart | None:
        """A start has failed, or could not even be made; None: the query ends with the error."""
        self._failures = 1 if progress > self._progress else self._failures + 1
        self._progress = progress
        gives_up = self._repeats_output and isinstance(error, GapError)
        if not (error.retryable or gives_up) or self._failures > self._limit:
            return None
        doublings = min(self._failures - 1, _MOST_DOUBLINGS)
        pause = min(self._backoff * 2.0**doublings, LONGEST_BACKOFF_SECONDS)
        return Restart(self._failures, pause, gives_up)


def may_resume(
    failures: Collection[str], *, given_up: Generation = NO_GENERATION, last_begun: Generation = NO_GENERATION
) -> bool:
    """Whether the next start may begin inside the epoch, by the errors that instances of the last one failed with.

    Not where one of them could not go on from where it was to. Nor before a start has begun since the history was
    `given_up` under a generation (0: never); the last that has is `last_begun`.
    """
    return ResumeFailed.__name__ not in failures and last_begun >= given_up


def cause_of(failures: Iterable[ClonosError]) -> ClonosError | None:
    """Of all that a start has failed with: what cannot be mended before what can.

    In real time all stages of a query fail together, and Spark reports whichever failure it heard first: often that of
    a neighbour whose connection broke, and not the reason. That a replica is fenced is never the reason: there is a
    newer one in its place.
    """
    reasons = [failure for failure in failures if not isinstance(failure, Fenced)]
    return min(reasons, key=lambda failure: failure.retryable, default=None)


def named(name: str, message: str) -> ClonosError:
    """An error by the name of its class. A name that is none of ours is of Spark's own."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, ClonosError):
        return kind(message)
    return errors.UserFunctionError(message) if name == "ReplicaFailed" else QueryFailed(message)
