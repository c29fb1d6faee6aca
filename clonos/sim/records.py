"""Records on their way between instances, and what the simulator itself knows about them.

A `Tag` rides on each record beside what the protocol sees. Only checkers read it: which position the record has, which
one was sent to the same instance before it, and on which determinants the record truly depends, computed from who
consumed what and not from any delta.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from clonos.protocol.engine.instance import Row
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.ingestion import UNKNOWN
from clonos.protocol.recovery.marker import Round


class Tag(NamedTuple):
    """What is true of a record, whatever the protocol believes."""

    channel: int
    position: int
    before: int  # the position sent to the same instance on this channel before, 0 if none
    depends: Mapping[Origin, LogOffset]  # log offset by origin
    checkpoints: Mapping[Origin, int]  # how many each had taken in the epoch


@dataclass(frozen=True, slots=True)
class Record:
    """One record on a channel. Its row ends with its tag, which operators hand to the checkers and never use."""

    position: int
    row: Row
    delta: bytes | None = None
    channel: int | None = None  # where it is not the sender's own: sources with names
    ingested: int = UNKNOWN


@dataclass(frozen=True, slots=True)
class Mark:
    """How far event time has come behind the records before it on a channel."""

    watermark: int
    channel: int | None = None  # as that of a record


@dataclass(frozen=True, slots=True)
class RoundMark:
    """The marker of a round, behind the records before it on a channel."""

    round: Round


Given: TypeAlias = Record | Mark | RoundMark
"""What goes over an exchange."""


class Rows:
    """Encoded rows: the rows themselves, and a digest of their text."""

    __slots__ = ("digest", "rows")

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.digest = zlib.crc32(repr(self.rows).encode())

    @property
    def older_digest(self) -> int:
        """All versions are alike here."""
        return self.digest
