"""What of a user's modules is other code, and what is not."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import cloudpickle
import pyarrow as pa
import pytest

from clonos.operators.function_code import code_digest, code_of, is_another
from clonos.operators.process import ConnectOperator, ProcessOperator
from clonos.operators.transform_with_state import TransformWithStateOperator
from clonos.operators.window_contents import Aggregate
from clonos.operators.window_operator import WindowOperator

JOB: Final = '''
"""A job."""
import functools
import json
import time

import shop.prices
from shop import rates as its
from shop.rates import VAT, Scale as Scaling
from shop.tools import *

START = time.time()
BASE = 2
RATE = BASE * 2
TABLE = {"a": 1}
TABLE["b"] = 2
UNUSED = 1
weight = 7  # called as an attribute of another module is
if BASE > 1:
    LEVEL = 1
try:
    LIMIT = 5
except ValueError:
    LIMIT = 6
TWICE = [each * its.FACTOR for each in (1, 2)]
SCALE = Scaling(3)
by_two = functools.partial(its.times, 2)


def logged(fn):
    def inner(*given):
        return fn(*given)
    return inner


@logged
def decorated(n: int) -> int:
    """What it is for."""
    return n + 1


@functools.lru_cache
def remembered(n):
    return n + 2


def unused():
    return 1


def helper(n):
    """Helps."""
    return n + RATE + LEVEL + LIMIT + len(TWICE)


class Base:
    def of(self, n):
        return n + 1


class Handler(Base):
    """Handles."""
    step = VAT

    def __init__(self, by=1):
        self.by = by

    def __call__(self, key, row, ctx):
        return self.of(row.n) + self.step

    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timers):
        yield from ()


def keep(key, row, ctx, by=START):
    ctx.state["x"] = helper(row.n) + shop.prices.weight(row.n) + TABLE["a"] + VAT + SCALE.of(1) + starred(1)
    ctx.state["y"] = decorated(1) + remembered(2) + by_two(3)
    return [json.dumps(ctx.state["x"])]


def plain(key, row, ctx):
    return row.weight(1)
'''
FILES: Final = {
    "job.py": JOB,
    "shop/__init__.py": "",
    "shop/prices.py": "from shop.rates import FACTOR\n\ndef weight(n):\n    return n * FACTOR\n",
    "shop/rates.py": (
        "VAT = 19\nFACTOR = 3\nOTHER = 1\n\ndef times(a, b):\n    return a * b\n\n"
        "class Scale:\n    def __init__(self, by): self.by = by\n    def of(self, n): return n * self.by\n"
    ),
    "shop/tools.py": "def starred(n):\n    return n\n",
}
Pick = Callable[[Any], Any]
Edit = tuple[str, str, str]


@contextmanager
def loaded(folder: Path, edits: tuple[Edit, ...] = ()) -> Iterator[Any]:
    """The job's module, from files of its own."""
    written = dict(FILES)
    for file, before, after in edits:
        assert written[file].count(before) == 1, before
        written[file] = written[file].replace(before, after)
    for name, text in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    known = dict(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module("job")
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - set(known):
            if name.partition(".")[0] in ("job", "shop"):
                del sys.modules[name]


def digest(folder: Path, pick: Pick, *edits: Edit) -> str:
    with loaded(folder, edits) as job:
        found = code_digest(pick(job))
    assert found
    return found


def keep(job: Any) -> Any:
    return job.keep


def handler(job: Any) -> Any:
    return job.Handler(2)


JOBS, RATES, PRICES = "job.py", "shop/rates.py", "shop/prices.py"
CHANGES: Final[dict[str, Edit]] = {
    "the function": (JOBS, "json.dumps(ctx", "json.dumps(1 + ctx"),
    "a default of it": (JOBS, "by=START", "by=BASE"),
    "a function of its module": (JOBS, "return n + RATE +", "return n - RATE +"),
    "a constant": (JOBS, "RATE = BASE * 2", "RATE = BASE * 3"),
    "a constant that a constant names": (JOBS, "BASE = 2", "BASE = 3"),
    "a literal": (JOBS, '{"a": 1}', '{"a": 2}'),
    "an entry": (JOBS, 'TABLE["b"] = 2', 'TABLE["b"] = 3'),
    "a constant below a condition": (JOBS, "    LEVEL = 1", "    LEVEL = 2"),
    "the condition": (JOBS, "if BASE > 1", "if BASE > 0"),
    "a constant below try": (JOBS, "LIMIT = 5", "LIMIT = 4"),
    "a constant that is imported": (RATES, "VAT = 19", "VAT = 20"),
    "a constant of a module that a constant names": (RATES, "FACTOR = 3", "FACTOR = 4"),
    "a function of another module": (PRICES, "return n * FACTOR", "return n + FACTOR"),
    "a function behind a star": ("shop/tools.py", "return n", "return -n"),
    "a method of a constant's class": (RATES, "return n * self.by", "return n + self.by"),
    "what a constant is given": (JOBS, "Scaling(3)", "Scaling(4)"),
    "a decorated function": (JOBS, "return n + 1\n\n\n@", "return n + 3\n\n\n@"),
    "its decorator": (JOBS, "return fn(*given)", "return -fn(*given)"),
    "a function that is remembered": (JOBS, "return n + 2", "return n + 3"),
    "a partial one": (JOBS, "partial(its.times, 2)", "partial(its.times, 3)"),
    "what is partial": (RATES, "return a * b", "return a + b"),
    "which module a name is": (JOBS, "from shop.rates import VAT,", "from shop.rates import OTHER as VAT,"),
}
NO_CHANGES: Final[dict[str, Edit]] = {
    "nothing": (JOBS, "UNUSED = 1", "UNUSED = 1"),
    "a comment and an empty line": (JOBS, "BASE = 2", "# of the shop\n\nBASE = 2  # two"),
    "a docstring of a function": (JOBS, "Helps.", "Helps a lot."),
    "a docstring of a decorated function": (JOBS, '    """What it is for."""\n', ""),
    "a docstring of the module": (JOBS, '"""A job."""', '"""Another."""'),
    "an annotation": (JOBS, "(n: int) -> int", "(n: float)"),
    "what is not named": (JOBS, "UNUSED = 1", "UNUSED = 2"),
    "a function that is not named": (JOBS, "def unused():\n    return 1", "def unused():\n    return 2"),
    "a constant that is not named": (RATES, "OTHER = 1", "OTHER = 2"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_function_depends_on_is_other_code(tmp_path: Path, what: str) -> None:
    then, now = digest(tmp_path / "then", keep), digest(tmp_path / "now", keep, CHANGES[what])
    assert is_another(then, now) and is_another(now, then)


@pytest.mark.parametrize("what", NO_CHANGES)
def test_what_it_does_not_depend_on_is_not(tmp_path: Path, what: str) -> None:
    assert not is_another(digest(tmp_path / "then", keep), digest(tmp_path / "now", keep, NO_CHANGES[what]))


def test_an_attribute_is_not_what_is_called_so_in_the_module(tmp_path: Path) -> None:
    edit = (JOBS, "weight = 7", "weight = 8")
    then, now = (
        digest(tmp_path / at, lambda job: job.plain, *edits) for at, edits in (("a", ()), ("b", (edit,)))
    )
    assert then == now


@pytest.mark.parametrize(
    ("edit", "is_other"),
    [
        ((JOBS, "return self.of(row.n)", "return -self.of(row.n)"), True),
        ((JOBS, "return n + 1\n\n\nclass", "return n + 2\n\n\nclass"), True),
        ((RATES, "VAT = 19", "VAT = 20"), True),
        ((JOBS, "def __init__(self, by=1)", "def __init__(self, by=2)"), True),
        ((JOBS, "Handles.", "Handles it."), False),
        ((JOBS, "RATE = BASE * 2", "RATE = 3"), False),
    ],
    ids=["a method", "a base's method", "a constant in the class", "a default", "docstring", "no part of it"],
)
@pytest.mark.parametrize(
    "pick", [handler, lambda job: job.Handler(2).__call__], ids=["object", "bound method"]
)
def test_of_an_object_it_is_its_class(tmp_path: Path, edit: Edit, is_other: bool, pick: Pick) -> None:
    then, now = digest(tmp_path / "then", pick), digest(tmp_path / "now", pick, edit)
    assert is_another(then, now) is is_other


def operators(job: Any) -> dict[str, Callable[[], Any]]:
    schema, anything = pa.schema([("n", pa.int64())]), pa.schema([("k", pa.string())])

    def window() -> Any:
        none: Any = None
        return WindowOperator(none, Aggregate(len, job.keep), ["n"], times=none, late=None, name="x")

    return {
        "process": lambda: ProcessOperator(job.keep, ["n"], name="x"),
        "on_timer": lambda: ProcessOperator(len, ["n"], name="x", on_timer=job.keep),
        "migrate": lambda: ProcessOperator(len, ["n"], name="x", migrate=job.keep),
        "connect": lambda: ConnectOperator(len, job.keep, ["n"], name="x"),
        "window": window,
        "transformWithState": lambda: TransformWithStateOperator(
            job.Handler(1), input=schema, output=anything, name="x"
        ),
    }


@pytest.mark.parametrize("form", operators(None))
def test_of_an_operator_it_is_that_of_its_functions(tmp_path: Path, form: str) -> None:
    found = []
    for at, edits in (("then", ()), ("now", ((RATES, "VAT = 19", "VAT = 20"),))):
        with loaded(tmp_path / at, edits) as job:
            found.append(code_of(operators(job)[form]))
    assert is_another(*found)


def test_what_is_not_followed_is_not_found_out(tmp_path: Path) -> None:
    """What the function imports itself, and what it looks up as text."""
    before = "    return row.weight(1)\n"
    after = "    from shop.rates import OTHER\n    return OTHER + globals()['UNUSED']\n"
    edit = (JOBS, before, after)
    then = digest(tmp_path / "then", lambda job: job.plain, edit)
    for at, changed in enumerate(
        (NO_CHANGES["a constant that is not named"], NO_CHANGES["what is not named"])
    ):
        assert then == digest(tmp_path / f"{at}", lambda job: job.plain, edit, changed)


def test_of_what_the_library_has_made_there_is_none() -> None:
    assert code_of(lambda: ProcessOperator(len, ["n"], name="x")) == ""
    assert code_of(None) == ""


def test_where_there_is_no_source_functions_are_compared(tmp_path: Path) -> None:
    """Constants are not. With one that has the source it is compared by the byte code."""

    def without_source(at: str, *edits: Edit) -> str:
        import compileall

        with loaded(tmp_path / at, edits):
            pass
        assert compileall.compile_dir(tmp_path / at, quiet=1, legacy=True)
        for name in FILES:
            (tmp_path / at / name).unlink()
        sys.path.insert(0, str(tmp_path / at))
        importlib.invalidate_caches()
        try:
            return code_digest(importlib.import_module("job").keep)
        finally:
            sys.path.remove(str(tmp_path / at))
            for name in [each for each in sys.modules if each.partition(".")[0] in ("job", "shop")]:
                del sys.modules[name]

    then, bare = digest(tmp_path / "then", keep), without_source("bare")
    assert then != bare and not is_another(then, bare)
    for what, is_other in (
        ("a function of another module", True),
        ("a constant", False),
        ("the function", True),
    ):
        assert is_another(bare, without_source(what, CHANGES[what])) is is_other
        assert is_another(then, without_source(f"{what}, too", CHANGES[what])) is is_other


def test_installed_packages_are_not_looked_at_but_for_the_functions_own(tmp_path: Path) -> None:
    """So one that is installed here and was beside the job there is no other code."""
    edit = (RATES, "VAT = 19", "VAT = 20")
    beside, installed = digest(tmp_path / "a", keep), tmp_path / "site-packages"
    assert "shop" in beside and "shop" not in digest(tmp_path / "b" / "site-packages", lambda job: job.Base())
    own = [
        digest(installed / at, lambda job: job.shop.prices.weight, *edits)
        for at, edits in (("c", ()), ("d", ()))
    ]
    assert own[0] == own[1] != ""
    factor = (RATES, "FACTOR = 3", "FACTOR = 4")
    assert is_another(own[0], digest(installed / "e", lambda job: job.shop.prices.weight, factor))
    assert is_another(beside, digest(tmp_path / "f", keep, edit))


PROGRAM: Final = """
import pickle, sys
from clonos.operators.function_code import code_digest
print(code_digest(pickle.loads(sys.stdin.buffer.read())))
"""
SCRIPT: Final = """
import sys, functools, cloudpickle, shop.prices, job
from shop.rates import VAT
LOCAL = {"a": job.helper}
def given(key, row, ctx):
    return [shop.prices.weight(VAT) + LOCAL["a"](1)]
sys.stdout.buffer.write(cloudpickle.dumps(functools.partial(given, ctx=None)))
"""


def told(folder: Path, pickled: bytes, seed: str) -> str:
    """In a process of its own."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=pickled, env=env, capture_output=True, check=True
    )
    return run.stdout.decode().strip()


def test_it_is_the_same_in_all_processes(tmp_path: Path) -> None:
    with loaded(tmp_path / "job") as job:
        here = code_digest(job.keep)
        pickled = cloudpickle.dumps(job.keep)
    with loaded(tmp_path / "other", (CHANGES["a constant"],)):
        pass
    assert [told(tmp_path / "job", pickled, seed) for seed in ("0", "1", "77")] == [here] * 3
    assert is_another(here, told(tmp_path / "other", pickled, "0"))


def test_what_a_function_of_a_script_names_is_followed(tmp_path: Path) -> None:
    """It is pickled by its value, and what it names of modules is not."""
    for at, edits in {
        "then": (),
        "now": (CHANGES["a constant"],),
        "far": (CHANGES["a function of another module"],),
    }.items():
        with loaded(tmp_path / at, edits):
            pass
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "then"), os.environ.get("PYTHONPATH", "")]),
    }
    pickled = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, check=True).stdout
    then = told(tmp_path / "then", pickled, "1")
    assert then == told(tmp_path / "then", pickled, "2")
    assert is_another(then, told(tmp_path / "now", pickled, "1"))
    assert is_another(then, told(tmp_path / "far", pickled, "1"))


def test_digests_of_earlier_versions_are_not_compared() -> None:
    """Nor are those of another release of Python."""
    now = code_digest(digest)
    release = now.partition("/")[0]
    assert not is_another(f"{release}:{'a' * 64}", now) and not is_another("", now)
    assert not is_another(now.replace(release, "3.1"), now.replace("=", "=0"))
    assert is_another(now, now.replace("=", "=0"))


def test_a_function_that_is_not_that_of_the_source_is_another(tmp_path: Path) -> None:
    with loaded(tmp_path / "it") as job:
        before = code_digest(job.keep)
        job.helper.__code__ = (lambda n: n + 9).__code__.replace(co_name="helper")
        assert is_another(before, code_digest(job.keep))


def test_what_has_run_since_makes_no_difference(tmp_path: Path) -> None:
    """A function may keep something in its module, as at the desk when another instance has been repeated."""
    lazily = "def plain(key, row, ctx):\n    global SCALE, TWICE\n    SCALE, TWICE = keep, its\n    return helper\n"
    with loaded(
        tmp_path / "it", ((JOBS, "def plain(key, row, ctx):\n    return row.weight(1)\n", lazily),)
    ) as job:
        before = code_digest(job.keep)
        job.plain(1, 2, 3)
        assert code_digest(job.keep) == before and pickle.loads(pickle.dumps(job.keep)) is job.keep
