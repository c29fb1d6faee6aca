"""What the checkers know of the rows that an instance has sent: it goes back with the instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clonos.protocol.ids import OutputNumber


@dataclass(frozen=True, slots=True)
class RowHistory:
    """What an instance had sent at a snapshot: by destination the numbers of its rows, and what they were."""

    sent: Mapping[int, Sequence[OutputNumber]] = field(default_factory=dict)
    rows: Mapping[OutputNumber, str] = field(default_factory=dict)
