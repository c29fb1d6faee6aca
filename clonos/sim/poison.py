"""Records that kill every replica that takes them: which ones do, and what the simulator knows of them.

A record is poison for the first operator that it meets. So every node's ledger must come out whole without it. Which
record is passed over is decided by `protocol.roles.crash_marks`; here is what is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from clonos.protocol.ids import Origin
from clonos.protocol.roles.crash_marks import DEADLY
from clonos.protocol.roles.death import KILLED
from clonos.sim.checks.violation import BeyondPromise, Violation
from clonos.sim.plan import Plan
from clonos.sim.records import Tag

CRASHED = "SIGSEGV"


def _anywhere(rng: Random, partitions: Sequence[Sequence[int]], count: int) -> Sequence[int]:
    records = sorted(record for dealt in partitions for record in dealt)
    return rng.sample(records, min(count, len(records)))


def _in_a_row(rng: Random, partitions: Sequence[Sequence[int]], count: int) -> Sequence[int]:
    dealt = rng.choice(partitions)
    first = rng.randrange(max(len(dealt) - count, 0) + 1)
    return dealt[first : first + count]


class Poison:
    """The poison of one run."""

    def __init__(self, rng: Random, partitions: Mapping[Origin, Sequence[int]], plan: Plan) -> None:
        draw = _in_a_row if plan.poison_in_a_row else _anywhere
        self.records = frozenset(draw(rng, list(partitions.values()), plan.poison))
        self.dead_letters: set[int] = set()
        self._struck: Counter[tuple[Origin, int]] = Counter()
        self._before: dict[tuple[Origin, int, int], int] = {}

    @staticmethod
    def signal(record: int) -> str:
        """The signal of which a process that takes this record dies. A SIGKILL may also have come from outside."""
        return CRASHED if record % 2 else KILLED

    def struck(self, origin: Origin, record: int) -> None:
        """A process has died with this record in hand, and its server had not wanted that."""
        self._struck[origin, record] += 1

    def letter(self, origin: Origin, record: int, tag: Tag) -> None:
        """The record is about to be passed over. Where faults have killed two processes at one record, that cannot be
        told from the record's doing."""
        if record not in self.records:
            if self._struck[origin, record] < DEADLY:
                raise Violation("I3", f"{origin} passes over record {record}, which has killed no process")
            raise BeyondPromise(f"faults have killed {origin} twice while it had record {record} in hand")
        self.dead_letters.add(record)
        self._before[origin, tag.channel, tag.position] = tag.before

    def before(self, origin: Origin, tag: Tag, last: int) -> int:
        """What an instance that has come to `last` must have consumed before, were it not for letters."""
        before = tag.before
        while before != last and (origin, tag.channel, before) in self._before:
            before = self._before[origin, tag.channel, before]
        return before
