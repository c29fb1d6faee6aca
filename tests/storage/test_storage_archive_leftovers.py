"""What a process was writing into the archive when it was killed does not stay there."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.archive import Archive
from clonos.storage.keyed_state import KeyedState

WHOLE = hashlib.sha256(b"whole").hexdigest()
ORIGIN, SIBLING = Origin.of(2, 0), Origin.of(2, 1)
KILLED = """
import os, signal, sys
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.storage.archive import Archive

archive = Archive(sys.argv[1])
if sys.argv[2] != "command":
    archive.begin_writing_of(Origin.of(2, int(sys.argv[2])), Fence.of(1, int(sys.argv[3])))
os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
archive.write_program("ab", b"a secret")
"""


def killed(checkpoint: Path, instance: int | str, attempt: int = 0) -> Path:
    """What a process leaves that was about to give its file the name."""
    before = set(left(checkpoint))
    ended = subprocess.run([sys.executable, "-c", KILLED, str(checkpoint), str(instance), str(attempt)])
    assert ended.returncode == -signal.SIGKILL
    (made,) = set(left(checkpoint)) - before
    assert b"a secret" in made.read_bytes()
    return made


def left(checkpoint: Path) -> list[Path]:
    return sorted((checkpoint / "clonos" / "archive").rglob("tmp/*"))


def test_an_instances_next_process_removes_what_was_left_of_it(tmp_path: Path) -> None:
    of_one, of_another = killed(tmp_path, 0, 1), killed(tmp_path, 1, 1)
    of_a_command, of_a_later_one = killed(tmp_path, "command"), killed(tmp_path, 0, 3)
    assert not of_one.exists()
    earlier = of_another.with_name("2-0-12345-7")  # as earlier versions have called it, after their process
    earlier.write_bytes(b"a secret")
    unlike = of_another.with_name("12-0-12345-7")
    unlike.write_bytes(b"a secret")
    archive = Archive(str(tmp_path))
    archive.begin_writing_of(ORIGIN, Fence.of(1, 2))
    assert left(tmp_path) == sorted([of_another, of_a_command, of_a_later_one, unlike])
    archive.write_program(WHOLE, b"whole")
    Archive(str(tmp_path)).begin_writing_of(ORIGIN, Fence.of(2))
    assert left(tmp_path) == sorted([of_another, of_a_command, unlike])
    assert archive.program(WHOLE) == b"whole"


@pytest.mark.parametrize("by", ["start", "command"])
def test_where_no_process_writes_nothing_stays(tmp_path: Path, by: str) -> None:
    for instance in (0, 1, "command"):
        killed(tmp_path, instance)
    inside = [
        tmp_path / "clonos/archive/state/2" / str(instance) / "tmp" / f"{1:032x}-0" for instance in (0, 1)
    ]
    for path in inside:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"a secret")
    archive = Archive(str(tmp_path))
    if by == "start":  # states have fences of their own, by which each instance sweeps
        archive.begin_writing()
        assert left(tmp_path) == inside
    else:
        archive.sweep([ORIGIN, SIBLING], Fence.of(2))
        assert left(tmp_path) == []
    archive.sweep([], Fence.of(2))  # and where there is none


def test_files_of_a_state_that_was_being_stored_go(tmp_path: Path) -> None:
    """They are there before what says that they are a state."""
    state = KeyedState(str(tmp_path / "state"))
    state.save(b"a secret", {"n": 1})
    archive = Archive(str(tmp_path))
    of_one, of_another = (
        archive.states(origin, fence=Fence.of(1, 1), pending=str(tmp_path / f"pending-{origin.instance}"))
        for origin in (ORIGIN, SIBLING)
    )
    for states in (of_one, of_another):
        states.finish(states.begin(state, b"", epoch=Epoch(0), sequence=1, final=True))
    state.close()
    whole = sorted((tmp_path / "clonos/archive/state").rglob("files/*"))
    for path in (tmp_path / "clonos/archive/state/2/0/manifests").iterdir():
        path.unlink()  # as if the process had been killed before
    archive.sweep([ORIGIN, SIBLING], Fence.of(2))
    left_of_states = sorted((tmp_path / "clonos/archive/state").rglob("files/*"))
    assert left_of_states == [path for path in whole if "/state/2/1/" in str(path)] != []
