"""A command that repeats functions is ended by a signal: at once, without anything that it has not to do, and with
nothing left of what it had in the clear."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streams import Place

from clonos import cli
from clonos.archive.asking import NotAnswered, ask

pytestmark = pytest.mark.spark

WAITS, ONLY_IN, ONLY_WHEN = "TEST_WAITS", "TEST_WAITS_ONLY_IN", "TEST_WAITS_ONLY_WHEN"
KEY = "eve"
FORGET = ("archive", "forget", "--operator", "see", "--key", KEY, "--yes")
GOES_ON = "clonos: the erasure was cut short. The same command again, with --yes, goes on with it"


def waits(function: str) -> None:
    """For ever, where the environment says so, which it does in no replica."""
    mark = os.environ.get(WAITS) if os.environ.get(ONLY_IN, "see") == function else None
    if mark is not None and Path(os.environ.get(ONLY_WHEN, "/")).exists():
        Path(mark).touch()
        while True:
            time.sleep(3600)


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    waits("see")
    yield row.k, ctx.state["n"]


def never_ends(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    waits("never_ends")
    yield row.k, 0


def raises(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    raise KeyboardInterrupt
    yield


@pytest.fixture
def archived(place: Place) -> Place:
    """What is kept goes on behind epochs in which the key came, at whose ends there is no state."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    seen = place.causal("k string", partitions=1).groupBy("k").process(see, "k string, n long", name="see")
    place.start(seen)
    for keys in ((KEY, "ann"), ("bob",), (KEY, "ann"), ("ann",), ("bob",)):
        before = len(place.rows())
        place.write([{"k": key} for key in keys], partitions=1)
        place.await_rows(before + len(keys))
        place.await_epochs()
    place.stop()
    return place


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    monkeypatch.setenv("PYTHONPATH", path)
    return folder


def files(checkpoint: Path) -> dict[Path, bytes]:
    """Of the archive, but for what a driver writes that leads the query."""
    return {
        path: path.read_bytes() for path in (checkpoint / "clonos" / "archive").rglob("*.*") if path.is_file()
    }


@contextlib.contextmanager
def waiting(mark: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command, which is in the user's function."""
    mark.unlink(missing_ok=True)
    with subprocess.Popen(
        [sys.executable, "-m", "clonos.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, WAITS: str(mark), **environment},
    ) as process:
        while not mark.exists() and process.poll() is None:
            time.sleep(0.01)
        try:
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            process.kill()


def ended(
    mark: Path, *arguments: str, number: signal.Signals = signal.SIGINT, **environment: str
) -> tuple[int, str, str]:
    """By one signal: its code, and what it has said."""
    with waiting(mark, *arguments, **environment) as process:
        process.send_signal(number)
        out, errors = process.communicate()
    return process.returncode, out, errors


def upto_its_prompt(process: subprocess.Popen[str]) -> str:
    """What pdb says before it asks for more, or the command ends."""
    assert process.stdout is not None
    said = ""
    while not said.endswith("(Pdb) ") and (one := process.stdout.read(1)):
        said += one
    return said


def leaves_interrupts_to_pdb(at: str, row: str) -> None:
    """Which goes on, and so does the command."""
    with subprocess.Popen(
        [sys.executable, "-m", "clonos.cli", "replay", at, "--row", row, "--pdb"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        upto_its_prompt(process)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate("c\n")
        assert process.returncode == 0 and "--KeyboardInterrupt--" in said


def test_every_command_ends_and_changes_nothing(
    archived: Place, temporary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, mark = str(archived.checkpoint), tmp_path / "waits"
    row = archived.rows()[0]["clonos_id"]
    before = files(archived.checkpoint)
    against = ("replay", at, "--operator", "see", "--against", f"{__file__}:never_ends")
    commands: list[tuple[str, ...]] = [
        ("archive", "verify", at),
        ("archive", "find", at, "--operator", "see", "all"),
        (*FORGET, at),
        (*FORGET, at, "--erase-unknown"),
        ("explain", at, row),
        ("lineage", at, row),
        ("state", at, "--operator", "see", "--at", "1"),
        ("export", at, "--row", row, "--to", str(tmp_path / "calls")),
        against,
    ]
    for command in commands:
        said = ended(mark, *command, **{ONLY_IN: "never_ends" if command is against else "see"})
        assert said[0] == 130 and "KeyboardInterrupt" not in "".join(said[1:]), (command, said)
        assert list(temporary.iterdir()) == [], command
        assert files(archived.checkpoint) == before, command
    assert ended(mark, "archive", "verify", at, number=signal.SIGTERM)[0] == 143
    assert list(temporary.iterdir()) == []
    leaves_interrupts_to_pdb(at, row)
    # What a function raises by itself stays an error of the function.
    against = (*against[:-1], f"{__file__}:raises")
    assert cli.main([*against, "--examples", "1"]) == 1
    assert "'see' raised KeyboardInterrupt" in capsys.readouterr().out


def test_an_erasure_that_is_cut_short_says_so(
    archived: Place, temporary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at, mark = str(archived.checkpoint), tmp_path / "waits"
    shutil.rmtree(tmp_path / "whole", ignore_errors=True)
    shutil.copytree(archived.checkpoint, tmp_path / "whole")
    assert cli.main([*FORGET, str(tmp_path / "whole")]) == 0
    assert cli.main(["archive", "verify", str(tmp_path / "whole")]) == 0
    wanted = capsys.readouterr().out.splitlines()
    begun = archived.checkpoint / "clonos" / "archive" / "erasure.json"
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        for more in ((), ("--erase-unknown",)):
            said = ended(mark, *FORGET, at, *more, number=number, **{ONLY_WHEN: str(begun)})
            assert said[0] == code and GOES_ON in said[2], said
            assert begun.exists() and list(temporary.iterdir()) == []
    assert cli.main([*FORGET, at]) == 0
    assert cli.main(["archive", "verify", at]) == 0
    assert capsys.readouterr().out.splitlines() == wanted


def test_what_a_killed_command_has_left_goes_with_a_later_one(
    archived: Place, temporary: Path, tmp_path: Path
) -> None:
    at, mark = str(archived.checkpoint), tmp_path / "waits"
    with waiting(mark, "archive", "verify", at) as killed:
        killed.kill()
        killed.wait()
    (left,) = temporary.iterdir()
    with waiting(mark, "archive", "verify", at) as lives:
        assert not left.exists()
        (used,) = temporary.iterdir()
        assert cli.main(["archive", "list", at]) == 0
        assert used.exists(), "it is in use"
        lives.send_signal(signal.SIGTERM)
        lives.communicate()
        assert list(temporary.iterdir()) == []


def test_nothing_is_left_of_a_question_that_is_given_up(
    archived: Place, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "waits"
    monkeypatch.setenv(WAITS, str(mark))
    with pytest.raises(NotAnswered):
        ask(["archive", "verify", str(archived.checkpoint)], is_wanted=lambda: not mark.exists())
    assert mark.exists() and list(temporary.iterdir()) == []
