"""How far counters go that are written into 64 bits.

A number that was used before would say that something else is a repetition of it; so what comes to its end is an error,
and nothing is done under the next number. The JVM, Arrow's columns and databases have signed numbers, and the wire and
the stores hold what they do: the last one is the same everywhere.
"""

from __future__ import annotations

from typing import Final

from clonos.errors import CounterExhausted, Where

LAST_LONG: Final = (1 << 63) - 1
ANEW: Final = "Start the query anew with another checkpoint and another sink"


def used_up(counter: str, where: Where | None = None, *, hint: str = ANEW) -> CounterExhausted:
    """`counter` says what would have gone beyond the last number."""
    return CounterExhausted(f"{counter} would go beyond {LAST_LONG}, the last number", where=where, hint=hint)
