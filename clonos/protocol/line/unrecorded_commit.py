"""An epoch that Spark has committed and that the driver cannot record, and why.

An instance that begins from nothing in micro-batch waits for the record of the epoch before: it proves that the
instance is new (`protocol.roles.incarnation`). Where trying again cannot mend what the driver has met, the record does
not come while the epoch runs, so the driver leaves its error where the record would stand, for instances that wait.

That alone does not end a query: where no instance waits, the next epoch commits with its snapshots, and is recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.errors import ClonosError
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch
from clonos.protocol.roles.restart_policy import named


@dataclass(frozen=True, slots=True)
class UnrecordedCommit:
    """See the module. `generation` is the start of the query whose driver says so, `error` the class of its error."""

    epoch: Epoch
    generation: Generation
    error: str
    message: str

    @classmethod
    def of(cls, epoch: Epoch, generation: Generation, error: ClonosError) -> UnrecordedCommit:
        return cls(epoch, generation, type(error).__name__, str(error))

    def is_of(self, epoch: Epoch, *, generation: Generation) -> bool:
        """Whether it says so of this epoch in this start of the query: another start may have found it mended."""
        return (self.epoch, self.generation) == (epoch, generation)

    def cause(self) -> ClonosError:
        """The driver's error, for an instance that waits for the record."""
        return named(self.error, f"the driver cannot record the commit of epoch {self.epoch}: {self.message}")
