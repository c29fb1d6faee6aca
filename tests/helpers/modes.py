"""Spark's two modes, as parameters of tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

MODES = ("microbatch", "realtime")


def in_turns(cases: Iterable[Any], name_of: Callable[[Any], str] = str) -> list[Any]:
    """Parameters (case, mode): every case in one mode, the modes in turns; in the other one with the soak tests."""
    return [
        pytest.param(
            case,
            mode,
            marks=() if (number + at) % 2 == 0 else (pytest.mark.soak,),
            id=f"{name_of(case)}-{mode}",
        )
        for number, case in enumerate(cases)
        for at, mode in enumerate(MODES)
    ]


def in_soak(cases: Iterable[Any], name_of: Callable[[Any], str] = str) -> list[Any]:
    """Parameters (case, mode) that go with the soak tests: their code path is that of another case."""
    return [
        pytest.param(case, mode, marks=pytest.mark.soak, id=f"{name_of(case)}-{mode}")
        for case in cases
        for mode in MODES
    ]


def mostly(mode: str) -> list[Any]:
    """The modes, of which the other one goes with the soak tests: for rules that do not know in which mode they are."""
    return [pytest.param(each, marks=() if each == mode else (pytest.mark.soak,)) for each in MODES]
