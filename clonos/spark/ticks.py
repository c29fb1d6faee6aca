"""Ticks in Spark's offsets: in micro-batches, a query with processing-time timers has a source of them beside each own.

Spark's file of an epoch's end offsets has one line per source, by place, and refuses a query with another number of
sources. Whether there are ticks changes with the mode, and with a version of a function that sets timers. So the files
that the next epoch begins with are fitted: a tick that has not been, which Spark writes as `-`, begins anew.
"""

from __future__ import annotations

from typing import Final

NONE: Final = "-"
_HEAD: Final = 2  # the version of the format, and the batch's metadata
_VERSION: Final = "v1"


def fitted(said: bytes, sources: int, *, ticking: bool) -> bytes:
    """Spark's file for a query of so many sources of its own, with ticks or without. What is neither stays as it is."""
    lines = said.decode(errors="surrogateescape").split("\n")
    if lines[0] != _VERSION:
        return said
    offsets = lines[_HEAD:]
    if ticking and len(offsets) == sources:
        offsets = [line for offset in offsets for line in (offset, NONE)]
    elif not ticking and len(offsets) == 2 * sources:
        offsets = offsets[::2]
    return "\n".join(lines[:_HEAD] + offsets).encode(errors="surrogateescape")
