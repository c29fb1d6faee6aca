"""Whether a store holds the history that a snapshot was taken in.

An epoch may be run anew with other outcomes, as long as no instance, sink or user has seen the first ones; a snapshot
at its end then belongs to the newer history. A store that was not there meanwhile, because an old copy of its disk has
come back, goes on as the instance did before. Nothing in the bytes of a log tells two histories apart, so a snapshot
keeps a digest of the log of its epoch, and so does a delta that names a log without its bytes (`delta`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from clonos.errors import LogConflict
from clonos.protocol.ids import LogOffset
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """The CRC-32 of an instance's log from where an epoch began to a snapshot, or to the end of a piece."""

    begins: LogOffset
    ends: LogOffset
    digest: int

    def is_of(self, log: CausalLog) -> bool:
        """Whether a log that reaches from `begins` to `ends` is the one that the mark was made of."""
        return zlib.crc32(log.prefix(self.begins)[: self.ends - self.begins]) == self.digest

    def contradicts(self, pieces: Iterable[Segment]) -> bool:
        """Whether a store with these pieces is of another history. One that does not hold all of the mark's log says
        nothing; neither does a snapshot of a version that kept no digest, which is 0 then."""
        log = CausalLog()
        try:
            for start, data in pieces:
                log.merge(start, data)
        except LogConflict:
            return False  # it says both, and putting the log together raises that
        return self.is_contradicted(log)

    def is_contradicted(self, log: CausalLog, snapshot: HistoryMark | None = None) -> bool:
        """Whether an instance that returns to a snapshot, and repeats this log, would repeat another history. The
        snapshot vouches for what comes before it; without one, all of the mark's log has to be there."""
        if not self.digest:
            return False
        if snapshot is not None and snapshot.begins == self.begins and snapshot.digest:
            start, digest = snapshot.ends, snapshot.digest
        else:
            start, digest = self.begins, 0
        known = log.prefix(start)[: self.ends - start]
        return start + len(known) == self.ends and zlib.crc32(known, digest) != self.digest
