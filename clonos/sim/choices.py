"""Everything a run leaves to chance, from one seed.

One stream per purpose, so that a run in which one purpose asks for more (an additional fault, say) still draws the same
world, and a failing seed can be shrunk. Streams are seeded by text: `random.Random` hashes it with SHA-512, so nothing
depends on the process.
"""

from __future__ import annotations

from random import Random


class Choices:
    """The streams of one run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.schedule = self.stream("schedule")  # delays, arrival orders, bundle boundaries
        self.faults = self.stream("faults")
        self.nature = self.stream("nature")  # clocks, entropy, answers: what no recovery brings back

    def stream(self, purpose: str) -> Random:
        return Random(f"{self._seed}/{purpose}")
