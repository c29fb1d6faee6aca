"""When two functions ask the same."""

from __future__ import annotations

import functools
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clonos.archive.question import identity_of, is_same


def ask(n: int) -> int:
    return n


def another(n: int) -> int:
    return n + 1


class Service:
    def __repr__(self) -> str:
        return "Service()"

    def ask(self, n: int) -> int:
        return n


def closure(step: int) -> Any:
    return lambda n: n + step


def same(one: Any, other: Any, *args: Any) -> bool:
    return is_same(identity_of(one, args or (1,), {}), identity_of(other, args or (1,), {}))


def test_what_is_the_same_question_and_what_is_not() -> None:
    assert same(ask, ask) and not same(ask, another)
    assert not same(json.loads, pickle.loads), "of another module, under the same name"
    assert not is_same(identity_of(ask, (1,), {}), identity_of(ask, (2,), {}))
    assert not is_same(identity_of(ask, (), {"n": 1}), identity_of(ask, (), {"n": 2}))
    assert same(closure(1), closure(1)) and not same(closure(1), closure(2))
    assert same(functools.partial(ask, 1), functools.partial(ask, 1))
    assert not same(functools.partial(ask, 1), functools.partial(another, 1))
    assert same(Service().ask, Service().ask)
    assert is_same(
        identity_of(ask, ({"a": {1, 2}, "b": 2},), {}), identity_of(ask, ({"b": 2, "a": {2, 1}},), {})
    )


@pytest.mark.parametrize("place", ["__main__", "elsewhere"])
def test_the_same_function_in_a_script_or_copied_to_another_module_is_the_same(place: str) -> None:
    copied: dict[str, Any] = {"__name__": place}
    exec(compile("def ask(n: int) -> int:\n    return n\n", "copied.py", "exec"), copied)
    assert same(ask, copied["ask"]) and same(copied["ask"], ask)
    changed: dict[str, Any] = {"__name__": place}
    exec(compile("def ask(n: int) -> int:\n    return n + 2\n", "copied.py", "exec"), changed)
    assert same(ask, changed["ask"]) is (place == "__main__"), "that of a script is known by its name"


QUESTIONS = """
import json, sys
from clonos.archive.question import identity_of
def nested(n):
    def inner(): return str(n) in {"aa", "bb", "cc"} or (lambda z: z + 1)(n)
    return inner
def ask(n): return n
print(json.dumps([identity_of(nested(3), (frozenset({"aa", "bb", "cc"}),), {}), identity_of(ask, ({"x", "y"},), {})]))
"""


def test_identities_are_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "questions.py").write_text(QUESTIONS)
    said = {
        subprocess.run(
            [sys.executable, str(tmp_path / "questions.py")],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
