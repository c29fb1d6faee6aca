"""Quarantine: after a death that a record may have caused, the runtime is asked before each record is run.

Running a record that kills every process would never end. Whether one is to be run at all is decided outside of the
core, where deaths are known; that it was *not* run is an event like any other, and recorded (`Kind.SKIP`).

A step whose end is not recorded is where a process may have died: an effect has made its beginning stable. It is
gone through record by record too, if the operator takes it so (`Operator.record_at_a_time`); one that sees the
records of a bundle together can only repeat it whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """A record about to be run, for the first time as far as the log says."""

    channel: int
    position: int
    row: tuple[Any, ...]
    recorded: (
        bytes  # a log chunk: the step of this record alone, with what an earlier life has recorded of it
    )
    is_whole_step: bool = True  # False: it stands for the rest of its step too, and cannot be passed over


class Quarantine(Protocol):
    """The runtime's decision about records."""

    def may_run(self, candidate: CandidateRecord) -> bool:
        """False: pass the record over. What is to be kept of it must be kept when this returns."""
        ...
