"""Which of a task attempt's bundles a state covers.

A conduit numbers its bundles and sends a replacement every one that it still keeps. What it has forgotten lies within
some snapshot; but the snapshot that a replacement could read may be an older one (the newest is damaged, say). A hole
in the numbers shows it, and the records in it exist nowhere any more, so the task attempt has to be given up.
"""

from __future__ import annotations

from clonos.errors import InputForgotten, Where
from clonos.protocol.counters import LAST_LONG, used_up


class BundleGapDetector:
    """Numbers taken, without holes from the first on."""

    def __init__(self, upto: int = 0) -> None:
        self._upto = upto

    @property
    def upto(self) -> int:
        return self._upto

    def take(self, seq: int, where: Where, *, first: int | None = None) -> None:
        """A bundle has come; with `first`, all from that one to `seq`. Raises InputForgotten where one before them is
        missing."""
        if seq > LAST_LONG:
            hint = "Start the query again: every task attempt numbers its bundles from 1"
            raise used_up("the number of the bundle", where, hint=hint)
        if (first or seq) > self._upto + 1:
            self._missing((first or seq) - 1, where)
        self._upto = max(self._upto, seq)

    def end(self, last: int, where: Where) -> None:
        """The last bundle of the epoch was `last`."""
        if last > self._upto:
            self._missing(last, where)

    def _missing(self, last: int, where: Where) -> None:
        raise InputForgotten(
            f"the newest snapshot that can be read covers the input up to bundle {self._upto}, but the conduit has "
            f"forgotten the bundles up to {last}",
            where=where,
            hint="A snapshot was damaged or removed; the epoch is run again from the end of the one before",
        )
