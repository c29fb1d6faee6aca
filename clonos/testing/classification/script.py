"""One run of an operator as it is to be played, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clonos.protocol.recovery.dependence import Service
from clonos.testing.classification.observation import Observation
from clonos.testing.driver.recording import Recording


@dataclass(frozen=True, slots=True)
class Script:
    """The rows of each bundle, and the seed of the instance's entropy."""

    bundles: tuple[tuple[tuple[Any, ...], ...], ...]
    seed: int

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for bundle in self.bundles for row in bundle]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run, which services it used, and what a replay needs. There is nothing to repeat where the function raised."""

    observation: Observation
    services: frozenset[Service]
    recording: Recording | None
