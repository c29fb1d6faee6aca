"""Where output is numbered from, when a history was given up.

Its rows were shown, and will not be made again: whatever comes instead needs numbers above all of theirs. So each start
of the query has a range of its own to begin with, above those of the starts before.
"""

from __future__ import annotations

from typing import Final

from clonos.errors import CounterExhausted

BITS_PER_START: Final = 44
LAST_START: Final = (1 << 63 - BITS_PER_START) - 1


def numbers_after(given_up: int) -> int:
    """Output numbers up to here belong to the history that ended with the start `given_up`; 0 where none was given up.
    Raises CounterExhausted where no numbers of 63 bits are left."""
    if given_up > LAST_START:
        raise CounterExhausted(
            f"start {given_up} of the query gave up its history, and output numbers are for {LAST_START} starts",
            hint="Start the query anew with another checkpoint and another sink",
        )
    return given_up << BITS_PER_START
