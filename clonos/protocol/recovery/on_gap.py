"""What the user wants done where an instance or a sink depends on determinants that no holder has (`GapError`)."""

from __future__ import annotations

import enum


class OnGap(enum.Enum):
    FAIL = "fail"
    AT_LEAST_ONCE = "at_least_once"
    """The history is given up, and what was shown since the last committed epoch may be shown again, otherwise."""
