"""Crash marks on the host's disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.protocol.ids import RecordId
from clonos.protocol.roles.crash_marks import InHand, Mark, Marks
from clonos.protocol.roles.death import Death
from clonos_standby.server.crash_mark_file import CrashMarkFile

DEATH = Death("signal", "died of SIGSEGV", 2, 0, pid=7, at=1.5, uptime=1.0, signal="SIGSEGV", stderr="in f")


@pytest.mark.parametrize("in_hand", [None, InHand(RecordId(1, 3), 8)])
def test_what_was_written_is_read(tmp_path: Path, in_hand: InHand | None) -> None:
    marks = Marks("s", in_hand, {(1, 2): Mark(), (1, 3): Mark(7, True, (DEATH, DEATH))})
    file = CrashMarkFile(tmp_path / "m")
    assert file.read() is None
    file.write(marks)
    assert CrashMarkFile(tmp_path / "m").read() == marks
    file.remove()
    file.remove()
    assert not (tmp_path / "m").exists()


def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"start": "s", "marks": [[1')
    assert CrashMarkFile(tmp_path / "m").read() is None
