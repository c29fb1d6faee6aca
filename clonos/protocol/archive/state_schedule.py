"""When an instance leaves its state in the archive: a later repetition begins from the newest one before what it asks
for.

A process leaves one at the first end of an epoch that it comes to, the next a minute later at the earliest; and inside
an epoch where many records have been processed since.
"""

from __future__ import annotations

from typing import Final

BETWEEN_S: Final = 60.0
BETWEEN_RECORDS: Final = 100_000
"""Inside an epoch: what a repetition has to run of a long one at most, about."""
MOST: Final = 1000
"""About how many states there are of the time that is kept: a longer one has them farther apart."""


class StateSchedule:
    """See the module. Of one process, and an archive that is kept for so many seconds."""

    def __init__(
        self, keep: float, *, between: float = BETWEEN_S, between_records: int = BETWEEN_RECORDS
    ) -> None:
        self._apart = max(between, keep / MOST)
        self._between_records = between_records
        self._begun_at: float | None = None
        self._records = 0  # that had been processed then

    def is_due(self, now: float, records: int, *, is_end: bool) -> bool:
        """At a checkpoint, of the end of an epoch or inside it, when so many records have been processed; `now` in
        seconds, by a steady clock."""
        if is_end:
            return self._begun_at is None or now - self._begun_at >= self._apart
        return records - self._records >= self._between_records

    def begun(self, now: float, records: int) -> None:
        """A state is being stored."""
        self._begun_at, self._records = now, records
