"""How outputs are judged, by what kind of query made them.

- *Rows*: which rows come out does not depend on the order of arrival. Each row has an identity and must be there once,
  as the reference has it.
- *Running*: every improvement of an answer is a row, numbered per group. Which ones there are depends on the order of
  arrival; that they are numbered without gap or repeat does not, nor does where they end.
- *Windows of processing time*: which window a record falls into is decided when it arrives. Any decision is right that
  keeps the order of each source partition; but there must have been one, and it must have been kept to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias

from clonos.tools.nexmark.query import Judgement, Row

Group: TypeAlias = Any  # whatever names a group: a key, or a tuple of them


def judge_rows(
    expected: Mapping[Hashable, tuple[Any, ...]],
    rows: Iterable[Row],
    identity: Callable[[Row], Hashable],
    content: Callable[[Row], tuple[Any, ...]],
) -> Judgement:
    """Every expected row once, and no other."""
    found = Judgement()
    seen: set[Hashable] = set()
    for row in rows:
        found.outputs += 1
        who = identity(row)
        if expected.get(who) != content(row):
            found.note("contradicted", f"{dict(row)} where {expected.get(who)} was due")
        elif who in seen:
            found.note("repeated", f"{dict(row)}")
        seen.add(who)
    for who in expected.keys() - seen:
        found.note("lost", f"{who}: {expected[who]}")
    return found


def numbered(
    rows: Iterable[Row], group: Callable[[Row], Group], found: Judgement, number: str = "n"
) -> dict[Group, list[Row]]:
    """The rows of each group in the order of their numbers, each number once; notes what is wrong with the numbers."""
    groups: dict[Group, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        found.outputs += 1
        known = groups[group(row)].setdefault(row[number], row)
        if known is not row:
            kind = "repeated" if dict(known) == dict(row) else "contradicted"
            found.note(kind, f"{dict(row)} after {dict(known)}")
    for who, members in groups.items():
        for missing in set(range(1, max(members) + 1)) - members.keys():
            found.note("lost", f"number {missing} of {who}")
    return {who: [members[n] for n in sorted(members)] for who, members in groups.items()}


def judge_running(
    expected: Mapping[Group, tuple[int, frozenset[Any]]],
    rows: Iterable[Row],
    group: Callable[[Row], Group],
    value: Callable[[Row], int],
    winner: Callable[[Row], Any],
) -> Judgement:
    """Maxima that rise: the last rows of each group have its best value, one row for every winner that has it."""
    found = Judgement()
    groups = numbered(rows, group, found)
    for who, members in groups.items():
        values = [value(row) for row in members]
        said = [(value(row), winner(row)) for row in members]
        if len(set(said)) < len(said):
            found.note("repeated", f"an answer of {who} under another number")
        if values != sorted(values):
            found.note("contradicted", f"a maximum that falls, of {who}: {values}")
        best, winners = expected.get(who, (None, frozenset()))
        last = frozenset(winner(row) for row in members if value(row) == values[-1])
        if values[-1] == best and last < winners:
            found.note("lost", f"{sorted(winners - last)} with {best} of {who}")
        elif (values[-1], last) != (best, winners):
            found.note("contradicted", f"{who} ends with {values[-1]} by {last}, not {best} by {winners}")
    for who in expected.keys() - groups.keys():
        found.note("lost", f"all of {who}")
    return found


class Windows:
    """Which window each event fell into, as far as the output says, and what that leaves open for the others.

    Records of one source partition reach an instance in order, and its clock does not go back: along each such path
    windows never decrease. So an event between two whose window is known has bounds, and often no choice.
    """

    def __init__(self, paths: Mapping[int, Hashable]) -> None:
        """`paths` says of every event by which path it went."""
        self._paths = paths
        self._known: dict[int, int] = {}

    def put(self, event: int, window: int) -> bool:
        """The output says that the event fell into the window; False if it said something else before."""
        return self._known.setdefault(event, window) == window

    def bounds(self) -> dict[int, tuple[float, float]]:
        """The first and the last window that each event can have fallen into; first > last is a contradiction."""
        by_path: dict[Hashable, list[int]] = defaultdict(list)
        for event in sorted(self._paths):
            by_path[self._paths[event]].append(event)
        lows: dict[int, float] = {}
        highs: dict[int, float] = {}
        for members in by_path.values():
            low = float("-inf")
            for event in members:
                low = lows[event] = max(low, self._known.get(event, low))
            high = float("inf")
            for event in reversed(members):
                high = highs[event] = min(high, self._known.get(event, high))
        return {event: (lows[event], highs[event]) for event in self._paths}
