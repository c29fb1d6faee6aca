"""A user's function stops for an editor that attaches, whatever kind of function it is and wherever it stands."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from debug_client import DebugClient

from clonos import cli
from clonos.archive.attached_editor import AttachAddress
from clonos.errors import ConfigurationError

FUNCTIONS = '''
import functools


def plain(key, row, ctx):
    """Says the next one."""
    following = row + 1
    return [following]


def generator(key, row, ctx):
    yield row + 1


async def coroutine(key, row, ctx):
    return [row + 1]


class Called:
    def __call__(self, key, row, ctx):
        return [row + 1]

    def method(self, key, row, ctx):
        return [row + 1]


shown = functools.partial(lambda key, row, ctx: [row + 1])
called = Called()
method = called.method
builtin = max


class Operator:
    def __init__(self, fn):
        self._fn = fn

    def bundle(self):
        given = self._fn("k", 7, None) if self._fn is not max else [self._fn(7, 8)]
        if hasattr(given, "send") and not hasattr(given, "__next__"):
            try:
                given.send(None)
            except StopIteration as ended:
                given = ended.value
        return list(given)
'''
LINES = {
    "plain": ("plain", "following = row + 1"),
    "generator": ("generator", "yield row + 1"),
    "coroutine": ("coroutine", "return [row + 1]"),
    "shown": ("<lambda>", "shown = "),
    "called": ("__call__", "return [row + 1]"),
    "method": ("method", "return [row + 1]"),
}

PROGRAM = """
import sys
from clonos.archive.attached_editor import AttachAddress, EditorDebugger
import functions

def waits(address):
    print("waits", address, flush=True)

operator = functions.Operator(getattr(functions, sys.argv[1]))
print("gave", EditorDebugger(AttachAddress.parse("0"), waits)(operator, operator.bundle))
"""


@contextlib.contextmanager
def stopping(folder: Path, name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that waits, and where."""
    folder.mkdir()
    (folder / "functions.py").write_text(FUNCTIONS)
    path = os.pathsep.join([str(folder), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("waits 127.0.0.1:"), said
            yield process, said.split()[-1]
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> None:
    said, errors = process.communicate(timeout=300)
    assert (process.returncode, said, errors) == (0, "gave [8]\n", "")


@pytest.mark.parametrize(
    ("name", "place"),
    [*((name, "project") for name in LINES), ("plain", "site-packages"), ("generator", "site-packages")],
)
def test_it_stops_at_the_first_line_of_the_function(tmp_path: Path, name: str, place: str) -> None:
    """Also of one that is installed, which an editor with "justMyCode", its default, passes by."""
    with stopping(tmp_path / place, name) as (process, address):
        with DebugClient(address) as editor:
            editor.attach(just_my_code=True)
            frame, *_ = editor.stopped()
            called, line = LINES[name]
            assert frame["name"] == called
            path = Path(frame["source"]["path"])
            assert path == tmp_path / place / "functions.py"
            assert path.read_text().splitlines()[frame["line"] - 1].strip().startswith(line)
            assert editor.evaluate(frame, "row") == "7"
            assert editor.variables(frame)["key"]["value"] == "'k'"
            editor.go_on()
        ended(process)


def test_without_a_function_in_python_it_stops_where_the_operator_begins(tmp_path: Path) -> None:
    with stopping(tmp_path / "project", "builtin") as (process, address):
        with DebugClient(address) as editor:
            editor.attach(just_my_code=True)
            assert editor.stopped()[0]["name"] == "bundle"
            editor.go_on()
        ended(process)


def test_an_editor_that_goes_leaves_the_function_to_its_end(tmp_path: Path) -> None:
    with stopping(tmp_path / "project", "plain") as (process, address):
        with DebugClient(address) as editor:
            editor.attach(just_my_code=False)
            editor.stopped()
        ended(process)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("5678", "127.0.0.1", 5678),
        ("0", "127.0.0.1", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("driver.example:80", "driver.example", 80),
        ("[::1]:5678", "::1", 5678),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    address = AttachAddress.parse(text)
    assert (address.host, address.port) == (host, port)
    assert AttachAddress.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":5678", "host:65536", "-1", "5678 ", "٣", "1:2:x"])
def test_what_is_no_address_is_refused_and_what_is_advised_is_one(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no address") as refused:
        AttachAddress.parse(text)
    assert refused.value.hint is not None
    for advised in (word.strip(",") for word in refused.value.hint.split() if word.strip(",")[-1].isdigit()):
        assert AttachAddress.parse(advised).host == "127.0.0.1"


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = PROGRAM.replace('parse("0")', f'parse("{taken.getsockname()[1]}")')
        (tmp_path / "functions.py").write_text(FUNCTIONS)
        path = os.pathsep.join([str(tmp_path), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", program, "plain"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
    assert done.returncode == 1 and "nothing can listen at 127.0.0.1:" in done.stderr, done.stderr


def test_one_debugger_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["replay", "/", "--row", "2-0-1", "--pdb", "--debugpy", "0"])
    assert "not allowed with argument --pdb" in capsys.readouterr().err
