"""Which checkpoints of an instance are in its logs of events, and which logs may go.

A log begins with a whole checkpoint, and each transaction behind it is a checkpoint: the one before, and what has
changed since. So a transaction that nothing begins with any more stays as long as a later one of its log counts, and
a log goes as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NewType

from clonos.protocol.line.snapshot_name import SnapshotName, is_marked, superseded

LogName = NewType("LogName", str)


def counting(log: Sequence[SnapshotName]) -> list[SnapshotName]:
    """The transactions of a log, oldest first, that count as checkpoints: those that would be kept if each stood alone,
    and all marked ones, as it is not written in a log up to where these may go."""
    if not log:
        return []
    passed_over = set(superseded(log, log[-1]))
    return [name for name in log if name not in passed_over or is_marked(name.sequence)]


class LoggedCheckpoints:
    """See the module. Of one instance, as one process knows them. `most`: transactions of a log, behind which a whole
    checkpoint is due."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._logs: dict[LogName, list[SnapshotName]] = {}
        self._dropped: dict[LogName, set[SnapshotName]] = {}
        self._log_of: dict[SnapshotName, LogName] = {}

    def __iter__(self) -> Iterator[SnapshotName]:
        """Those that count and have not been dropped."""
        for log, names in self._logs.items():
            dropped = self._dropped[log]
            yield from (name for name in counting(names) if name not in dropped)

    def add(self, log: LogName, names: Iterable[SnapshotName]) -> None:
        """Transactions were written to a log, behind those that are known."""
        names = list(names)
        self._logs.setdefault(log, []).extend(names)
        self._log_of.update(dict.fromkeys(names, log))
        self._dropped.setdefault(log, set())

    def is_full(self, log: LogName) -> bool:
        """Whether no more is to be written to it."""
        return len(self._logs.get(log, ())) >= self._most

    def log_of(self, name: SnapshotName) -> LogName | None:
        """In which it is."""
        return self._log_of.get(name)

    def drop(self, names: Iterable[SnapshotName]) -> list[LogName]:
        """Nothing begins with these any more. The logs that may go, in which none is left that counts."""
        gone = set(names)
        for log, known in self._logs.items():
            self._dropped[log] |= gone.intersection(known)
        return [log for log, known in self._logs.items() if self._dropped[log].issuperset(counting(known))]

    def forget(self, log: LogName) -> None:
        """It is gone."""
        for name in self._logs.pop(log, ()):
            del self._log_of[name]
        self._dropped.pop(log, None)
