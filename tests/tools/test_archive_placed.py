"""In which epoch a row was made, where ends of epochs are not in the archive; and what is repeated up to one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from clonos.archive.reading import ArchivedInstance
from clonos.archive.states import states_of
from clonos.errors import StateError
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.recovery.causal.determinant_codec import (
    append_boundary,
    append_order,
    append_sent,
    seal,
)
from clonos.storage.archive import Archive

ORIGIN = Origin.of(2, 0)
ROWS = 10
"""Of each epoch."""


def instance(tmp_path: Path, kinds: Sequence[str]) -> ArchivedInstance:
    """Epoch by epoch: ended, open, damaged, or not there ("")."""
    archive = Archive(str(tmp_path))
    files = archive.segments(ORIGIN)
    at = LogOffset(0)
    for number, kind in enumerate(kinds):
        log = recorded(number)
        end = LogOffset(at + len(log))
        if kind:
            ended = None if kind == "open" else EpochEnded(end, OutputNumber(ROWS * (number + 1)))
            files.write(segment(number, at, log, ended))
        if kind == "damaged":
            (path,) = tmp_path.glob(f"clonos/archive/segments/2/0/{number:020d}-*")
            path.write_bytes(path.read_bytes()[:-1])
        at = end
    return ArchivedInstance("see", ORIGIN, archive, files.names(), archive.states(ORIGIN))


def recorded(epoch: int) -> bytes:
    """One step of an epoch, which gave its rows."""
    entries = bytearray()
    append_boundary(entries, Epoch(epoch), seed=7)
    step = bytearray()
    append_order(step, [(0, 1)])
    append_sent(step, ROWS, 0)
    return seal(entries) + seal(step)


def segment(number: int, at: LogOffset, log: bytes, ended: EpochEnded | None) -> ArchiveSegment:
    return ArchiveSegment(
        origin=ORIGIN,
        epoch=Epoch(number),
        fence=Fence.of(1, 1),
        number=1,
        written_at=10,
        realtime=True,
        program="p",
        epoch_start=at,
        log_start=at,
        log=log,
        ended=ended,
    )


END = "ended"


@pytest.mark.parametrize(
    "kinds",
    [
        [END] * 9,
        [END, "open", END, END, END, END, END, END, END],
        [END, END, END, END, "open", END, END, END, END],
        [END, END, END, "open", "open", END, "open", END, "open"],
        ["open", "", END, END, "open", "", "", END, END],
        ["open", END, "", "open", END, END, "open", "", "open"],
        [END, "damaged", END, "open", END, END, "open", END, "open"],
        [END, "open", "damaged", END, END, "open", END],
    ],
)
def test_a_row_of_an_epoch_that_has_ended_is_found_whatever_others_lack(
    tmp_path: Path, kinds: list[str]
) -> None:
    found = instance(tmp_path, kinds)
    for number, kind in enumerate(kinds):
        for row in (ROWS * number + 1, ROWS * (number + 1)):
            made_in = found.rows.made_in(OutputNumber(row))
            if kind == END:
                assert made_in == number, f"row {row}"
            else:
                is_last = number == len(kinds) - 1
                assert isinstance(made_in, Lacking) or (kind == "open" and is_last and made_in == number)


def test_rows_of_an_epoch_without_its_end_are_said_to_be_of_that(tmp_path: Path) -> None:
    lacking = instance(tmp_path, [END, "open", END]).rows.made_in(OutputNumber(ROWS + 1))
    assert isinstance(lacking, Lacking)
    assert (
        lacking.why
        == "its epoch is not in the archive, or is epoch 1, which has not ended, as far as the archive has it"
    )


def test_the_state_behind_an_epoch_that_is_not_there_is_not_that_of_the_one_before(tmp_path: Path) -> None:
    found = instance(tmp_path, [END, "", END])
    with pytest.raises(
        StateError, match="at the end of epoch 1 cannot be had: epoch 1: it is not in the archive"
    ):
        list(states_of(found, Epoch(1)))
