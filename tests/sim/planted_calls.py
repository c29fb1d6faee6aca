"""Planted bugs about calls that are under way while a function goes on."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from planted import CRASHES, Planted, blind, planted

from clonos.protocol.engine.task_scheduler import TaskScheduler
from clonos.protocol.recovery.causal import determinant_codec
from clonos.protocol.recovery.causal.recorder import StepRecorder, Wait
from clonos.protocol.recovery.causal.replayer import StepReplayer

Patch = pytest.MonkeyPatch


def answers_are_repeated_in_the_order_of_the_calls(patch: Patch) -> None:
    blind(patch)
    real = StepReplayer._next_answer

    def next_answer(self: StepReplayer, wait: Wait) -> Any:
        known = {answer.number: answer for answer in self._step.answers}
        first = min(known.keys() & self._under_way.keys(), default=None)
        if first is not None:
            rest = [answer for answer in self._step.answers if answer.number != first]
            self._step.answers = deque([known[first], *rest])
        return real(self, wait)

    patch.setattr(StepReplayer, "_next_answer", next_answer)


def calls_under_way_are_made_again(patch: Patch) -> None:
    """All of them, as if nothing of them were recorded."""
    blind(patch)
    patch.setattr(StepReplayer, "_begin", StepRecorder._begin)
    patch.setattr(StepReplayer, "_next_answer", StepRecorder._next_answer)


def an_answer_is_used_before_it_is_recorded(patch: Patch) -> None:
    """It stands behind what the function did with it, an effect perhaps."""
    blind(patch)
    real, held = StepRecorder.next_answer, "_held_answer"

    def flush(self: StepRecorder) -> None:
        answer = self.__dict__.pop(held, None)
        if answer is not None:
            determinant_codec.append_answer(self._entries, answer)

    def next_answer(self: StepRecorder, wait: Wait) -> Any:
        flush(self)
        entries, self._entries = self._entries, bytearray()
        answer = real(self, wait)
        self._entries = entries
        self.__dict__[held] = answer
        return answer

    close = StepRecorder.close

    def closed(self: StepRecorder, outputs: int, digest: int) -> bytes:
        flush(self)
        return close(self, outputs, digest)

    patch.setattr(StepRecorder, "next_answer", next_answer)
    patch.setattr(StepRecorder, "close", closed)


def what_goes_on_next_is_not_said_by_the_answers_alone(patch: Patch) -> None:
    """The scheduler prefers another one of those that are ready each time, which the core itself finds out."""
    real = TaskScheduler.run
    turns = iter(range(10**9))

    def run(self: TaskScheduler[Any], coroutines: Any) -> None:
        given = list(coroutines)
        if next(turns) % 2:
            given.reverse()
        real(self, given)

    patch.setattr(TaskScheduler, "run", run)


AT_ONCE = {"calls_at_once": True, "calls": True, "poison": 0, "per_epoch": False, "bundle": 20}

CALLS: dict[str, Planted] = {
    bug.__name__: planted(bug, rates=CRASHES, **{**AT_ONCE, **changes})
    for bug, changes in (
        (answers_are_repeated_in_the_order_of_the_calls, {"first": 6}),
        (calls_under_way_are_made_again, {}),
        (an_answer_is_used_before_it_is_recorded, {"effects": True, "first": 43}),
        (what_goes_on_next_is_not_said_by_the_answers_alone, {}),
    )
}
