"""The log of an instance that repeats nothing, where others have logs: a mark for each checkpoint that has rows.

It sends only what a durable checkpoint has. The mark comes before the first rows that are in its next checkpoint, so
what depends on these rows depends on the log up to there, as with any other log, and the checkpoint says which marks
it has. Where a holder has a later mark than the newest checkpoint, rows were sent that no checkpoint has.
All marks are alike, so the log needs no store: it can be written down again.
"""

from __future__ import annotations

from typing import Final

from clonos.protocol.ids import LogOffset
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.causal_log import Segment


def _mark() -> bytes:
    entries = bytearray()
    codec.append_checkpoint(entries)
    return codec.seal(entries)


MARK: Final = _mark()


def marks_between(start: LogOffset, end: LogOffset) -> list[Segment]:
    """The log from one offset to another, both between marks."""
    return [(start, MARK * ((end - start) // len(MARK)))] if start < end else []
