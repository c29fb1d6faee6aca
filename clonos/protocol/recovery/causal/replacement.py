"""Which snapshot inside an epoch a replacement may start from.

A conduit that replaces a lost replica sends again the bundles that it keeps, and says which rows (`emitted_output`) and
which part of the instance's log (up to `log_end`) it has taken over in this task attempt. What was under way when the
connection was given up is lost, and a snapshot that became durable behind it is of no use: the replacement would not
make it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clonos.protocol.fence import Fence, generation_of, of_same_attempt
from clonos.protocol.ids import LogOffset, OutputNumber


class Failover(NamedTuple):
    """An instance went on on another server: under which fence, and up to which offset the conduit knew its log."""

    fence: Fence
    known_upto: LogOffset


@dataclass(frozen=True, slots=True)
class ConduitProgress:
    """What a conduit shows when it connects."""

    fence: Fence
    emitted_output: OutputNumber
    log_start: LogOffset
    log_end: LogOffset
    failovers: tuple[Failover, ...] = ()

    def allows(
        self,
        *,
        fence: Fence,
        log_offset: LogOffset,
        emitted: OutputNumber,
        before: Callable[[], OutputNumber],
        keeps_sent: bool,
    ) -> bool:
        """Whether to start from a snapshot inside the epoch, of that fence, taken at that offset of the log when rows
        up to `emitted` had left. `before()` is the number of the last row of the epochs before. Where the snapshot
        `keeps_sent` rows, the conduit need not have them: they are sent again."""
        return (
            of_same_attempt(fence, self.fence)
            and is_of_this_history(fence, log_offset, self.failovers)
            and joins_known_log(log_offset, known_upto=self.log_end)
            and (
                keeps_sent
                or stands_for_known_output(emitted, emitted_output=self.emitted_output, before=before)
            )
        )


def binds(ended: Fence, fence: Fence) -> bool:
    """Whether an attempt that ended an epoch under the fence `ended` binds the one of `fence` that runs it again.

    In one start of the query Spark runs an instance again when its output is lost after it has ended, and not those
    that have read it. The next start runs everything again.
    """
    return generation_of(ended) == generation_of(fence) and not of_same_attempt(ended, fence)


def is_of_this_history(fence: Fence, log_offset: LogOffset, failovers: Iterable[Failover]) -> bool:
    """Whether a snapshot taken under `fence` lies before every later failover: what a lost replica did beyond the log
    that its conduit knew, its standby has not repeated."""
    return all(log_offset <= failover.known_upto for failover in failovers if failover.fence > fence)


def stands_for_known_output(
    snapshot_output: OutputNumber, *, emitted_output: OutputNumber, before: Callable[[], OutputNumber]
) -> bool:
    """Whether the conduit has every row that a replacement would not make again, those up to `snapshot_output`: it took
    over rows up to `emitted_output` in this task attempt, and those up to `before()` in the epochs before."""
    return snapshot_output <= emitted_output or snapshot_output <= before()


def joins_known_log(log_offset: LogOffset, *, known_upto: LogOffset) -> bool:
    """Whether what follows a snapshot joins what the conduit keeps of the log, `known_upto` (0: nothing yet).

    Increments without rows can be under way, too. Behind a snapshot that lies beyond them they would not be made again,
    and the conduit refuses a log with a hole.
    """
    return known_upto == 0 or log_offset <= known_upto
