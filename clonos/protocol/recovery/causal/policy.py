"""What causal logging decides for an instance: everything is taken as it comes, and recorded."""

from __future__ import annotations

from collections.abc import Iterator

from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.policy import Decision, InstancePolicy


class CausalPolicy(InstancePolicy):
    """See the module."""

    repeats = True
    replaces = True
    sends_late = False
    checkpoints_alone = True
    logs_messages = False

    def begin_epoch(self) -> None:
        """Nothing is kept here."""

    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        yield bundle

    def begin_round(self, begun: Round) -> Iterator[Decision]:
        """There are no rounds."""
        yield from ()

    def end_input(self) -> Iterator[Decision]:
        yield from ()
