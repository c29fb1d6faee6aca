"""What most recoveries decide for an instance: everything is taken as it comes. They differ in what is recorded, kept,
and stored before it is sent (`recovery_kind`)."""

from __future__ import annotations

from collections.abc import Iterator

from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.policy import Decision, InstancePolicy
from clonos.protocol.recovery.recovery_kind import RecoveryKind


class AsItComes(InstancePolicy):
    """See the module."""

    def __init__(self, kind: RecoveryKind, *, goes_back: bool) -> None:
        self.kind = kind
        self.goes_back = goes_back

    def begin_epoch(self) -> None:
        """Nothing is kept here."""

    def arrive(self, bundle: Bundle) -> Iterator[Decision]:
        yield bundle

    def begin_round(self, begun: Round) -> Iterator[Decision]:
        """There are no rounds."""
        yield from ()

    def end_input(self) -> Iterator[Decision]:
        yield from ()
