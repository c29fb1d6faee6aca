"""What every queue of timers promises, as checks to run against an implementation of `KeepsTimers`.

    @pytest.mark.parametrize("check", TIMER_CHECKS, ids=check_name)
    def test_my_timers(check):
        check(MyTimers())

The queue must be empty when a check begins. A check raises AssertionError, with a text, where the promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from clonos.protocol.operator import TimerPort
from clonos.testing.conformance.checks import check_name, same

__all__ = ["TIMER_CHECKS", "KeepsTimers", "Timer", "check_name"]

Timer = tuple[int, bytes, str]

LAST = 2**63 - 1
MOMENTS = (-(2**63), -3, -1, 0, 1, 2, 5, 12, LAST)
KEYS = (b"", b"\x00", b"\x00\x00", b"\x00\x01", b"\x00\xff", b"\x01", b"a", b"a\x00", b"ab", b"\xff")
NAMES = ("", "\x00", "a", "ä", "\U0001f600")
STEPS = 600


class KeepsTimers(TimerPort, Protocol):
    """Timers of one family, and what fires them."""

    def pop_due(self, upto: int) -> list[Timer]:
        """Take out every timer that is due at or before `upto`, in the order (due, key, name)."""
        ...


def without_timers_nothing_is_due(timers: KeepsTimers) -> None:
    same("the first moment", timers.next_due(), None)
    same("what is due", timers.pop_due(LAST), [])
    timers.cancel(3, b"k", "never set")
    same("the first moment", timers.next_due(), None)


def a_timer_that_is_set_twice_fires_once(timers: KeepsTimers) -> None:
    timers.set(10, b"k")
    timers.set(10, b"k")
    same("what is due before its moment", timers.pop_due(9), [])
    same("what is due at its moment", timers.pop_due(10), [(10, b"k", "")])
    same("the first moment behind it", timers.next_due(), None)
    timers.set(10, b"k")
    same("what is due when it is set again", timers.pop_due(10), [(10, b"k", "")])


def timers_fire_by_moment_then_key_then_name(timers: KeepsTimers) -> None:
    every = [(due, key, name) for due in MOMENTS for key in KEYS for name in NAMES]
    for timer in Random(1).sample(every, len(every)):
        timers.set(*timer)
    in_order = sorted(every)
    same("the first moment", timers.next_due(), in_order[0][0])
    same("what is due up to now", timers.pop_due(1), [timer for timer in in_order if timer[0] <= 1])
    same("what is due at last", timers.pop_due(LAST), [timer for timer in in_order if timer[0] > 1])


def a_timer_for_the_past_is_the_next_one(timers: KeepsTimers) -> None:
    timers.set(10, b"k")
    same("what is due", timers.pop_due(20), [(10, b"k", "")])
    timers.set(30, b"later")
    timers.set(5, b"k", "late")
    same("the first moment", timers.next_due(), 5)
    same("what is due", timers.pop_due(20), [(5, b"k", "late")])
    same("the first moment", timers.next_due(), 30)


def cancelling_takes_back_one_timer_and_no_other(timers: KeepsTimers) -> None:
    for timer in ((1, b"k", "a"), (1, b"k", "b"), (1, b"l", "a"), (2, b"k", "a")):
        timers.set(*timer)
    timers.cancel(1, b"k", "a")
    timers.cancel(1, b"k", "c")
    same("what is due", timers.pop_due(LAST), [(1, b"k", "b"), (1, b"l", "a"), (2, b"k", "a")])
    timers.set(4, b"k")
    same("the first moment", timers.next_due(), 4)
    timers.cancel(4, b"k")
    same("the first moment without it", timers.next_due(), None)


def any_run_is_as_with_a_sorted_set(timers: KeepsTimers) -> None:
    """A long run of random steps."""
    dice, kept = Random(2), set[Timer]()
    for step in range(STEPS):
        timer = (dice.choice(MOMENTS), dice.choice(KEYS), dice.choice(NAMES))
        action = dice.random()
        if action < 0.5:
            timers.set(*timer)
            kept.add(timer)
        elif action < 0.7:
            taken = dice.choice(sorted(kept)) if kept and dice.random() < 0.8 else timer
            timers.cancel(*taken)
            kept.discard(taken)
        elif action < 0.85:
            same(f"the first moment, step {step}", timers.next_due(), min(kept, default=(None,))[0])
        else:
            due = sorted(each for each in kept if each[0] <= timer[0])
            same(f"what is due at {timer[0]}, step {step}", timers.pop_due(timer[0]), due)
            kept.difference_update(due)


TIMER_CHECKS: tuple[Callable[[KeepsTimers], None], ...] = (
    without_timers_nothing_is_due,
    a_timer_that_is_set_twice_fires_once,
    timers_fire_by_moment_then_key_then_name,
    a_timer_for_the_past_is_the_next_one,
    cancelling_takes_back_one_timer_and_no_other,
    any_run_is_as_with_a_sorted_set,
)
"""What a queue of timers promises."""
