"""What an instance has sent, as frames that are sent again."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.errors import ProtocolError
from clonos.protocol.ids import LogOffset, OutputNumber
from clonos.protocol.ports import Emit
from clonos.storage.keyed_state import KeyedState
from clonos.wire.framing import frame_of, to_bytes
from clonos.wire.messages import Output, OutputBlock, pack_heartbeat, pack_output, parse
from clonos_standby.replica.sent_frames import SentFrames

BLOCKS = [OutputBlock(0, b"some rows"), OutputBlock(3, b"some more")]


def emit(last: int) -> Emit:
    return Emit(OutputNumber(last), 1, None, [[0]], {}, LogOffset(0), b"", OutputNumber(last))


def sent(frames: SentFrames, since: int) -> list[Output]:
    found = [parse(frame_of(to_bytes(frame))) for _, frame in frames.frames(OutputNumber(since))]
    assert all(isinstance(each, Output) for each in found)
    return [each for each in found if isinstance(each, Output)]


def test_a_frame_is_sent_again_as_it_was_but_for_what_its_attempt_had_taken(tmp_path: Path) -> None:
    state = KeyedState(str(tmp_path / "state"))
    frames = SentFrames(state, lambda: 0)
    for last in (4, 9):
        frames.keep(emit(last), pack_output(77, OutputNumber(last), LogOffset(0), rows=2, blocks=BLOCKS))
    (again,) = sent(frames, 5)
    assert (again.acked_input, again.emitted_output, again.rows) == (0, 9, 2)
    assert [(to, bytes(block)) for to, block in again.blocks] == [(to, bytes(block)) for to, block in BLOCKS]
    frames.forget(OutputNumber(5))
    assert [each.emitted_output for each in sent(frames, 0)] == [9]
    frames.clear()
    assert sent(frames, 0) == []
    state.close()


def test_a_frame_that_was_kept_is_checked() -> None:
    whole = to_bytes(pack_heartbeat(5))
    assert frame_of(whole).payload == whole[9:]
    for cut in range(len(whole)):
        with pytest.raises(ProtocolError):
            frame_of(whole[:cut])
    for at in range(len(whole)):
        damaged = bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]])
        with pytest.raises(ProtocolError):
            frame_of(damaged)
