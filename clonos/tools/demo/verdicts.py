"""What a run showed, in one word, and the exit status that says the same."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

__all__ = ["EXIT_STATUS", "Result", "result_of", "worst"]


class Result(Enum):
    """What a run showed. Only a run that was struck as planned can show that a system survives the strikes; what is
    wrong in the output is wrong whether all strikes came about or not.
    """

    EXACT = "exact"
    WRONG = "wrong"
    INCONCLUSIVE = "inconclusive"


EXIT_STATUS = {Result.EXACT: 0, Result.WRONG: 1, Result.INCONCLUSIVE: 3}  # 2 is wrong usage


def result_of(*, exact: bool, failed: bool, struck_as_planned: bool) -> Result:
    """`exact`: nothing is wrong with the output. `failed`: the system gave up."""
    if not exact or failed:
        return Result.WRONG
    return Result.EXACT if struck_as_planned else Result.INCONCLUSIVE


def worst(results: Iterable[Result]) -> Result:
    """The result of several runs: wrong if one was, else inconclusive if one was."""
    found = set(results)
    return next((each for each in (Result.WRONG, Result.INCONCLUSIVE) if each in found), Result.EXACT)
