"""What a role does when its runtime may let time pass in between: a generator of steps.

A role yields nothing of its own. It passes on what the functions of its runtime yield (the simulator lets virtual time
pass at each of them), and the runtime that needs no pause carries all steps out at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

Steps: TypeAlias = Generator[Any, None, Any]
T = TypeVar("T")


def carry_out(steps: Generator[Any, None, T]) -> T:
    """All steps at once, for a runtime in which time passes by itself."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
