"""How a replay differs from what was seen before, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clonos.operators.process import Timer
from clonos.protocol.engine.instance import Row


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be seen of an instance between two bundles, by key."""

    states: dict[Any, Any]  # as the function knows them
    kept: dict[Any, dict[bytes, bytes]]  # the same to the bit, and what else is kept of the key
    timers: dict[Any, list[Timer]]


def of_rows(before: Sequence[Row], now: Sequence[Row]) -> str:
    """Where two lists of output rows of one step begin to differ."""
    for number, (was, is_now) in enumerate(zip(before, now, strict=False)):
        if repr(was) != repr(is_now):
            return f"output row {number} was {was!r}, the replay gives {is_now!r}"
    if len(before) == len(now):
        return f"the output rows {list(before)!r} are other ones to the bit in the replay"
    longer, who = (before, "was not given again") if len(before) > len(now) else (now, "was not there before")
    shared = min(len(before), len(now))
    return (
        f"there were {len(before)} output rows, the replay gives {len(now)}: row {shared}, "
        f"{longer[shared]!r}, {who}"
    )


def of_states(before: Seen, now: Seen) -> str:
    """The first key whose state differs; "" where none does. Compared is what is kept, to the bit."""
    for key, kept in before.kept.items():
        if now.kept.get(key) != kept:
            return f"the state of key {key!r} was {before.states[key]!r}, after the replay it is {now.states[key]!r}"
    return ""


def of_timers(before: Seen, now: Seen) -> str:
    """The first key whose timers differ; "" where none does."""
    for key in dict.fromkeys([*before.timers, *now.timers]):
        was, is_now = before.timers.get(key, []), now.timers.get(key, [])
        if was != is_now:
            return f"the timers of key {key!r} were {was!r}, after the replay they are {is_now!r}"
    return ""
