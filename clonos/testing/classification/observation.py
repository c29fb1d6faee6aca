"""What can be seen of one run, as text that is the same where the values are, and how much two runs differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clonos.protocol.recovery.dependence import Sensitivity


@dataclass(frozen=True, slots=True)
class OutputRow:
    """`key` is that of the row's columns which have the names of the operator's key, with its output's name."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The output rows in order; by key the state at the end and the timers that are set then. What the function raised
    ends the run."""

    rows: tuple[OutputRow, ...]
    states: Mapping[str, str]
    timers: Mapping[str, str]
    raised: str = ""

    def by_key(self) -> dict[str, list[str]]:
        """The rows of each key, in order."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            found.setdefault(row.key, []).append(row.text)
        return found

    def last(self) -> dict[str, str]:
        return {row.key: row.text for row in self.rows}


def difference(one: Observation, other: Observation) -> Sensitivity:
    """How much the runs differ. The order of rows does not count, but for which is the last one of its key. Of two runs
    that were ended by what the function raised nothing is said: each of them would end the query."""
    if one.raised and other.raised:
        return Sensitivity.INSENSITIVE
    if (bool(one.raised), one.states, one.timers) != (bool(other.raised), other.states, other.timers):
        return Sensitivity.DIVERGENT
    if Counter(one.rows) == Counter(other.rows):
        return Sensitivity.INSENSITIVE
    return Sensitivity.CONVERGENT if one.last() == other.last() else Sensitivity.DIVERGENT


def what_differs(one: Observation, other: Observation) -> str:
    """The gravest difference in words; "" where there is none."""
    if one.raised and other.raised:
        return ""
    if one.raised or other.raised:
        return f"what is raised: {one.raised or 'nothing'} | {other.raised or 'nothing'}"
    for what, mine, theirs in (
        ("the state of key", one.states, other.states),
        ("the timers of key", one.timers, other.timers),
    ):
        for key in sorted(mine.keys() | theirs.keys()):
            if mine.get(key) != theirs.get(key):
                return f"{what} {key}: {mine.get(key, 'none')} | {theirs.get(key, 'none')}"
    if Counter(one.rows) == Counter(other.rows):
        return ""
    lasts = one.last(), other.last()
    for key in sorted(lasts[0].keys() | lasts[1].keys()):
        mine_last, theirs_last = lasts[0].get(key, "none"), lasts[1].get(key, "none")
        if mine_last != theirs_last:
            return f"the last row of key {key}: {mine_last} | {theirs_last}"
    for key, rows in one.by_key().items():
        if sorted(rows) != sorted(other.by_key()[key]):
            return f"the rows of key {key}: {_listed(rows)} | {_listed(other.by_key()[key])}"
    return ""


def _listed(rows: Sequence[str]) -> str:
    return ", ".join(rows) or "none"
