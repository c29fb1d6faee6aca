"""What truly happened, whatever a driver or a replica of the run believes: every instance's log as it was made, which
rows it sent where, and up to which offset of the log anything visible depends on it.

A log may lose its end: when an instance goes live before the end of what an earlier incarnation had made, that end
never happened. `cut` is where it is decided whether that was allowed.
"""

from __future__ import annotations

from collections import defaultdict

from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, OutputNumber
from clonos.sim.checks.violation import Violation
from clonos.sim.row_history import RowHistory


class Truth:
    """See the module."""

    def __init__(self) -> None:
        self.logs: dict[Origin, bytearray] = defaultdict(bytearray)
        self.sent: dict[Origin, dict[int, list[OutputNumber]]] = defaultdict(lambda: defaultdict(list))
        self.rows: dict[Origin, dict[OutputNumber, str]] = defaultdict(dict)
        self.states: dict[Origin, dict[LogOffset, tuple[str, dict[Origin, LogOffset]]]] = defaultdict(dict)
        self.visible: dict[Origin, LogOffset] = defaultdict(lambda: LOG_BEGIN)

    def extend(self, origin: Origin, start: LogOffset, data: bytes) -> None:
        """Log bytes were made, or made again."""
        log = self.logs[origin]
        if start > len(log):
            raise Violation("I2", f"the log of {origin} goes on at {start}, but ended at {len(log)}")
        known = bytes(log[start : start + len(data)])
        if known != data[: len(known)]:
            raise Violation(
                "I2", f"the log of {origin} was made again from offset {start} on, with other bytes"
            )
        log += data[len(known) :]

    def cut(self, origin: Origin, offset: LogOffset) -> int:
        """What was made beyond an offset never happened; how many bytes."""
        log = self.logs[origin]
        gone = len(log) - offset
        if gone > 0:
            del log[offset:]
            states = self.states[origin]
            for later in [at for at in states if at > offset]:
                del states[later]
            self._never_happened(origin, offset)
        return max(gone, 0)

    def _never_happened(self, origin: Origin, offset: LogOffset) -> None:
        """Nor did the states of other instances that depend on this log beyond the offset; `Orphans` checks that
        nothing which counts depends on it. Such an instance may have kept its own log: it is repeated on the records
        that come in place of the former ones."""
        for states in self.states.values():
            for at in [at for at, (_, depends) in states.items() if depends.get(origin, 0) > offset]:
                del states[at]

    def row_history(self, origin: Origin) -> RowHistory:
        """As it is now."""
        return RowHistory({to: list(sent) for to, sent in self.sent[origin].items()}, dict(self.rows[origin]))

    def go_back(self, origin: Origin, history: RowHistory) -> None:
        """What the instance has sent since that was never."""
        self.sent[origin] = defaultdict(list, {to: list(sent) for to, sent in history.sent.items()})
        self.rows[origin] = dict(history.rows)

    def cut_rows(self, origin: Origin, last: OutputNumber) -> None:
        """Rows numbered beyond `last` never happened."""
        for positions in self.sent[origin].values():
            while positions and positions[-1] > last:
                positions.pop()
        rows = self.rows[origin]
        for number in [number for number in rows if number > last]:
            del rows[number]
