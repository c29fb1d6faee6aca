"""How a replay differs from what was seen before, in words.

What was seen is kept as text and bytes, so that another process can compare with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clonos.operators.process import Timer


@dataclass(frozen=True, slots=True)
class Said:
    """The output rows of one step: their digest, and each as text."""

    digest: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be seen of an instance between two bundles, by key."""

    states: dict[Any, str]  # as the function knows them, in canonical text
    kept: dict[Any, dict[bytes, bytes]]  # the same to the bit, and what else is kept of the key
    timers: dict[Any, list[Timer]]


def of_rows(before: Sequence[str], now: Sequence[str]) -> str:
    """Where two lists of output rows of one step begin to differ."""
    for number, (was, is_now) in enumerate(zip(before, now, strict=False)):
        if was != is_now:
            return f"output row {number} was {was}, the replay gives {is_now}"
    if len(before) == len(now):
        return f"the output rows [{', '.join(before)}] are other ones to the bit in the replay"
    longer, who = (before, "was not given again") if len(before) > len(now) else (now, "was not there before")
    shared = min(len(before), len(now))
    return (
        f"there were {len(before)} output rows, the replay gives {len(now)}: row {shared}, "
        f"{longer[shared]}, {who}"
    )


def of_states(before: Seen, now: Seen) -> str:
    """The first key whose state differs; "" where none does. Compared is what is kept, to the bit."""
    for key, kept in before.kept.items():
        if now.kept.get(key) == kept:
            continue
        was, is_now = before.states[key], now.states[key]
        if was == is_now:
            return f"the state of key {key!r} is {was} after the replay, too, with its items in another order"
        return f"the state of key {key!r} was {was}, after the replay it is {is_now}"
    return ""


def of_timers(before: Seen, now: Seen) -> str:
    """The first key whose timers differ; "" where none does."""
    for key in dict.fromkeys([*before.timers, *now.timers]):
        was, is_now = before.timers.get(key, []), now.timers.get(key, [])
        if was != is_now:
            return f"the timers of key {key!r} were {was!r}, after the replay they are {is_now!r}"
    return ""
