"""Making a counterexample smaller: fewer records, as long as it still shows a difference.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 2002) down to
where no single record can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

TRIES = 200


def fewest(
    records: Sequence[int], shows: Callable[[Sequence[int]], bool], *, tries: int = TRIES
) -> list[int]:
    """The fewest of the records found with which `shows` holds, as it does with all; at most so many tries."""
    kept, left = list(records), tries
    size = max(len(kept) // 2, 1)
    while True:
        smaller = None
        for at in range(0, len(kept), size):
            candidate = kept[:at] + kept[at + size :]
            if not candidate or not left:
                continue
            left -= 1
            if shows(candidate):
                smaller = candidate
                break
        if smaller is not None:
            kept, size = smaller, min(size, max(len(smaller) // 2, 1))
        elif size > 1:
            size //= 2
        else:
            return kept
