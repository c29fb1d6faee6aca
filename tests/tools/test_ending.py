"""A signal ends a command that runs a function, whatever the function does with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = """
import os, signal, sys, time
from pathlib import Path
from clonos import cli, ending
from clonos.operators.outputs import RAISED
from clonos.storage.working_folders import working_folder
from clonos.tools import explain

STATUS = 3

if "IGNORED" not in globals():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what runs the tests may ignore it, as nohup does

def lets_it_pass():
    try:
        print("runs", flush=True)
        time.sleep(3600)
    except RAISED:
        print("taken for an error of the function")

def catches_it():
    try:
        print("runs", flush=True)
        time.sleep(3600)
    except BaseException:
        "and goes on"

def never_ends():
    for step in [lambda: print("runs", flush=True), *[lambda: time.sleep(3600)] * 9]:
        try:
            step()
        except BaseException:
            "and goes on"

def exits_beside():
    if os.fork() == 0:
        os._exit(7)
    os.wait()
    os._exit(STATUS)

def run(arguments):
    with working_folder("desk") as folder, ending.says_when_cut_short("it was cut short"):
        Path(folder, "secret").touch()
        globals()[sys.argv[1]]()
        ending.check()
        print("goes on")
    return 0

ending.GRACE_SECONDS = 0.5
explain.run = run
sys.exit(cli.main(["explain", "checkpoint", "1-0-1"]))
"""


@pytest.mark.parametrize("function", ["lets_it_pass", "catches_it", "never_ends"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_it_ends(function: str, number: signal.Signals, code: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, function],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        out, errors = process.communicate()
    assert (process.returncode, out, errors) == (code, "", "it was cut short\n")
    assert list(tmp_path.iterdir()) == []


def test_the_second_one_is_not_waited_for(tmp_path: Path) -> None:
    """While it would end by itself, in an hour."""
    command = COMMAND.replace("GRACE_SECONDS = 0.5", "GRACE_SECONDS = 3600").replace(
        '"and goes on"', 'print("heard", flush=True)'
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, "never_ends"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130
    assert list(tmp_path.iterdir()) == []


def test_what_is_ignored_stays_so(tmp_path: Path) -> None:
    """As by `nohup`, or of what a shell starts in the background."""
    ignoring = "import signal\nIGNORED = signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + COMMAND
    with subprocess.Popen(
        [sys.executable, "-c", ignoring, "lets_it_pass"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 143


@pytest.mark.parametrize(("status", "code"), [(3, 3), (0, 1)])
def test_a_function_that_ends_the_process_is_told(tmp_path: Path, status: int, code: int) -> None:
    """And is no success. Of its forks, which have no part in the command, nothing is said."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.replace("STATUS = 3", f"STATUS = {status}"), "exits_beside"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    told = f"clonos: a function has ended the process: os._exit({status})\n"
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)
    assert list(tmp_path.iterdir()) == []
