"""What a command says where its standard output is full, closed, or has another encoding; and where it is interrupted
before it has begun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = """
import sys
from clonos import cli
from clonos.tools import explain

def run(arguments):
    for _ in range(int(sys.argv[1])):
        print("a row of Zoë \\ud800")
    return 0

explain.run = run
sys.exit(cli.main(["explain", "checkpoint", "1-0-1"]))
"""
FEW, MANY = "1", "100000"  # lines: they are written at the end, or meanwhile


def said(
    code: str, *arguments: str, out: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=out,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        check=False,
    )


@pytest.mark.parametrize("lines", [FEW, MANY])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error_in_one_line(lines: str, unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        found = said(SAYS, lines, out=full.fileno(), PYTHONUNBUFFERED=unbuffered)
    wanted = b"clonos: the standard output cannot be written: No space left on device\n"
    assert (found.returncode, found.stderr) == (1, wanted)


@pytest.mark.parametrize("lines", [FEW, MANY])
def test_a_reader_that_has_gone_has_seen_enough(lines: str) -> None:
    read, write = os.pipe()
    os.close(read)
    found = said(SAYS, lines, out=write)
    os.close(write)
    assert (found.returncode, found.stderr) == (0, b"")


def test_an_output_that_is_closed_is_not_wanted() -> None:
    closed = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])"
    found = said(closed, SAYS, MANY)
    assert (found.returncode, found.stderr, found.stdout) == (0, b"", b"")


@pytest.mark.parametrize(
    ("encoding", "row"), [("ascii", rb"Zo\xeb \ud800"), ("utf-8", "Zoë ".encode() + rb"\ud800")]
)
def test_what_has_no_character_is_escaped(encoding: str, row: bytes) -> None:
    found = said(SAYS, FEW, PYTHONIOENCODING=encoding)
    assert (found.returncode, found.stderr, found.stdout) == (0, b"", b"a row of " + row + b"\n")


def test_an_interrupt_while_the_command_is_loaded_ends_it() -> None:
    found = said(
        "import sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'clonos.ending':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from clonos.start import main\n"
        "sys.exit(main())\n"
    )
    assert (found.returncode, found.stderr) == (130, b"")


def test_an_interrupt_waits_while_the_command_begins_once_more() -> None:
    """With the hash seed of replicas, in a new program of the same process."""
    found = said(
        "import os, signal\n"
        "from clonos import cli\n"
        "os.execve = lambda *_: print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        "cli._fix_hash_seed()\n",
        PYTHONHASHSEED="random",
    )
    assert (found.stdout, found.stderr) == (b"True\n", b"")
    found = said(
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['clonos', 'explain', 'checkpoint', '1-0-1']\n"
        "from clonos.start import main\n"
        "sys.exit(main())\n",
        PYTHONHASHSEED="0",
    )
    assert (found.returncode, found.stderr) == (130, b"")
