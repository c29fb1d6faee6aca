"""What the rows and the state of an operator depend on, besides its input.

The words are those of the field. A function is *deterministic* if the same records in the same order give the same
rows and the same state. Where it is not, the outcome of every event that it depends on may be *recorded*, so that a
replay repeats it, or *hidden* from the log. Of two orders of the same records that keep the order within each channel,
or of two ways to cut the same order into bundles, an operator may give the same rows; other rows on the way, but the
same state and the same last row of each key (it *converges*); or it *diverges*.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Service(enum.Enum):
    """What a function can ask of its context."""

    CLOCK = "clock"
    RANDOM = "random"
    CALL = "call"
    EFFECT = "effect"
    TIMER = "timer"  # of processing time: the clock says when it fires
    EVENT_TIMER = "event timer"  # the records say when it fires


NONDETERMINISTIC = frozenset(Service) - {Service.EVENT_TIMER}
"""The services whose answer does not follow from the records."""


class Determinism(enum.Enum):
    DETERMINISTIC = "deterministic"
    RECORDED = "recorded"
    HIDDEN = "hidden"


class Sensitivity(enum.IntEnum):
    """How much another order, or other bundles, change. The larger, the more."""

    INSENSITIVE = 0  # the same rows, perhaps in another order, and the same state
    CONVERGENT = 1  # other rows on the way; the same state and the same last row of each key
    DIVERGENT = 2  # another state, or another last row of a key


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependence:
    """Of an operator. What could not be examined is taken for divergent."""

    determinism: Determinism
    services: frozenset[Service] = frozenset()
    order: Sensitivity = Sensitivity.DIVERGENT
    bundles: Sensitivity = Sensitivity.DIVERGENT

    @property
    def has_effects(self) -> bool:
        return Service.EFFECT in self.services

    @property
    def on_arrival(self) -> Sensitivity:
        """On how the records arrive: their order and their bundles."""
        return max(self.order, self.bundles)
