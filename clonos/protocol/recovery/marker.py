"""Markers: where a round of checkpoints cuts a channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

Round = NewType("Round", int)
"""One checkpoint of the whole query, by the number that its driver gives it: the first of a start is 1."""
NO_ROUND: Final = Round(0)
"""The one before the first."""


@dataclass(frozen=True, slots=True)
class Marker:
    """On a channel, what comes before it belongs to the round, and what follows does not. In a bundle it comes behind
    so many of the bundle's records."""

    channel: int
    round: Round
    behind: int
