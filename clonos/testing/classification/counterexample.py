"""The smallest input found that shows what an operator depends on."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clonos.testing.classification.laboratory import Place
from clonos.testing.classification.observation import Observation
from clonos.testing.classification.schedule import Bundles


class Between(enum.Enum):
    """What two runs of a counterexample differ in, besides their outcome."""

    REPLAY = "replay"  # nothing: one was recorded, the other one repeats it
    ORDER = "order"
    BUNDLES = "bundles"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: its records, by bundle, and what came of them."""

    bundles: tuple[tuple[str, ...], ...]
    rows: tuple[str, ...]
    states: Mapping[str, str]
    raised: str

    @classmethod
    def of(cls, bundles: Bundles, rows: Mapping[int, str], seen: Observation) -> Side:
        """`rows` has the text of each record."""
        return cls(
            tuple([tuple([rows[number] for number in bundle]) for bundle in bundles]),
            tuple([row.text for row in seen.rows]),
            seen.states,
            seen.raised,
        )


@dataclass(frozen=True, slots=True)
class Counterexample:
    """`what` differs, in words. Of a replay there is no second run to show, but the place where it was tried."""

    between: Between
    records: int
    what: str
    first: Side
    second: Side | None = None
    place: Place | None = None

    def as_json(self) -> dict[str, Any]:
        runs = [self.first] if self.second is None else [self.first, self.second]
        said: dict[str, Any] = {
            "between": self.between.value,
            "records": self.records,
            "what": self.what,
            "runs": [
                {
                    "bundles": [list(bundle) for bundle in run.bundles],
                    "rows": list(run.rows),
                    "states": dict(run.states),
                    "raised": run.raised,
                }
                for run in runs
            ],
        }
        if self.place is not None:
            said["place"] = self.place.value
        return said
