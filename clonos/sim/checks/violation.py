"""What a checker raises."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant
        self.what = what

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.invariant, self.what)


class BeyondPromise(Exception):
    """More was lost than the protocol promises to survive, in a way that it cannot notice; the run ends here."""
