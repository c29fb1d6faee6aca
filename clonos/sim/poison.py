"""Records that kill every replica that takes them, and what is known of who died where. Mirrors
`clonos_standby.server.crash_marks`.

A record is poison for the first operator that it meets. So every node's ledger must come out whole without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from clonos.protocol.ids import Origin
from clonos.sim.records import Tag

DEADLY = 2


class Poison:
    """The poison of one run."""

    def __init__(self, rng: Random, partitions: Mapping[Origin, Sequence[int]], count: int) -> None:
        records = sorted(record for dealt in partitions.values() for record in dealt)
        self.records = frozenset(rng.sample(records, min(count, len(records))))
        self.letters: set[int] = set()
        self._careful: set[Origin] = set()
        self._deaths: Counter[tuple[Origin, int, int, int]] = Counter()
        self._before: dict[tuple[Origin, int, int], int] = {}

    def is_careful(self, origin: Origin) -> bool:
        return origin in self._careful

    def died(self, origin: Origin, record: int, tag: Tag) -> None:
        """With a record in hand; which one, only a careful process has written down."""
        if origin in self._careful:
            self._deaths[origin, tag.channel, tag.position, record] += 1
        self._careful.add(origin)

    def passed(self, origin: Origin) -> None:
        self._careful.discard(origin)

    def may_run(self, origin: Origin, record: int, tag: Tag) -> bool:
        return self._deaths[origin, tag.channel, tag.position, record] < DEADLY

    def letter(self, origin: Origin, record: int, tag: Tag) -> None:
        """The record is about to be passed over."""
        self.letters.add(record)
        self._before[origin, tag.channel, tag.position] = tag.before

    def before(self, origin: Origin, tag: Tag, last: int) -> int:
        """What an instance that has come to `last` must have consumed before, were it not for letters."""
        before = tag.before
        while before != last and (origin, tag.channel, before) in self._before:
            before = self._before[origin, tag.channel, before]
        return before
