"""A failure that is made on purpose: what is done to which process of a query, wherever that runs.

It crosses hosts, so it names no process: only the host that runs one can take hold of it. The host that is asked looks
up which process plays the role there, and refuses what makes no sense before anything has been touched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from clonos.errors import ClonosError, ConfigurationError
from clonos.protocol.ids import Origin

LONGEST: Final = 1e6
SLOWEST: Final = 100.0


class Kind(Enum):
    """The value is the option's name."""

    KILL = "kill"
    STOP = "stop"
    SLOW = "slow"
    CORRUPT_LOG = "corrupt-log"
    PARTITION = "partition"


class Role(Enum):
    """Whose process it is."""

    PRIMARY = "primary"
    STANDBY = "standby"
    SERVER = "server"


class NoProcess(ClonosError):
    """No process plays the role at the moment, or another one than a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCommand:
    """`seconds` is how long it lasts, `factor` how much slower; node and instance are of a replica."""

    kind: Kind
    role: Role
    node: int = 0
    instance: int = 0
    seconds: float = 0.0
    factor: float = 1.0

    @property
    def origin(self) -> Origin:
        """Of the replica."""
        return Origin.of(self.node, self.instance)

    def check(self) -> None:
        """Raises ConfigurationError."""
        if (self.kind is Kind.PARTITION) > (self.role is Role.SERVER):
            raise ConfigurationError("a partition is between servers: a single instance cannot be cut off")
        if (self.kind is Kind.CORRUPT_LOG) > (self.role is not Role.SERVER):
            raise ConfigurationError("a causal log is an instance's: a server has none of its own")
        lasting = self.kind in (Kind.STOP, Kind.SLOW, Kind.PARTITION)
        if not math.isfinite(self.seconds) or not lasting <= (self.seconds > 0) or self.seconds > LONGEST:
            raise ConfigurationError(f"{self.seconds} is not a time in seconds")
        if self.kind is Kind.SLOW and not 1 < self.factor <= SLOWEST:
            raise ConfigurationError(f"{self.factor} is not a factor between 1 and {SLOWEST:g}")
