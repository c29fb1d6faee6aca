"""What the outside says while an operator is tried: the same in every run of a trial.

A call gets the answer that the same question got in the run before, so that two runs do not differ because a service
has changed its mind. An effect takes place nowhere, unless that is asked for. Calls of async functions are asked anew.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from clonos.protocol.engine.services import CausalServices

_Question: TypeAlias = tuple[str, str, str]


class Stage:
    """The outside of one process."""

    def __init__(self, *, performs_effects: bool) -> None:
        self.performs_effects = performs_effects
        self._trial: object = None
        self._answers: dict[tuple[_Question, int], Callable[[], Any]] = {}
        self._asked: Counter[_Question] = Counter()

    def begin_run(self, trial: object) -> None:
        """Another run begins, of this trial. Another trial has answers of its own."""
        if trial != self._trial:
            self._trial = trial
            self._answers.clear()
        self._asked.clear()

    def answer(self, question: _Question, ask: Callable[[], Any]) -> Any:
        """The answer of an earlier run to the same question, as often as it was asked there; else a new one."""
        number = self._asked[question]
        self._asked[question] += 1
        known = self._answers.get((question, number))
        if known is None:
            known = self._answers[question, number] = _outcome(ask)
        return known()

    def services(self, **ports: Any) -> CausalServices:
        return StagedServices(self, **ports)


class StagedServices(CausalServices):
    """The services of an instance on a stage."""

    def __init__(self, stage: Stage, **ports: Any) -> None:
        super().__init__(**ports)
        self._stage = stage

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        @functools.wraps(fn, updated=())
        def staged(*given: Any, **named: Any) -> Any:
            question = (getattr(fn, "__qualname__", repr(fn)), repr(given), repr(named))
            return self._stage.answer(question, functools.partial(fn, *given, **named))

        return super().call(staged, args, kwargs)

    def effect(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> Any:
        if self._stage.performs_effects:
            return super().effect(fn, args, kwargs, key)
        return super().effect(_nothing, key=key)


def _nothing() -> None:
    """Stands for an action."""


def _outcome(ask: Callable[[], Any]) -> Callable[[], Any]:
    """Gives the result again, or raises the exception again."""
    try:
        value = ask()
    except Exception as error:
        raised = error

        def again() -> Any:
            raise raised

        return again
    return lambda: value
