"""Rounds beside instances that keep what they have sent: what of that may go, and which marker is sent again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from clonos.errors import LogCorrupt, StorageUnavailable
from clonos.protocol.fence import Generation
from clonos.protocol.ids import NO_EPOCH, Epoch, NodeId, Origin, OutputNumber
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.coordinated.last_marker import LastMarker
from clonos.protocol.recovery.coordinated.round_coordinator import RoundCoordinator
from clonos.protocol.recovery.coordinated.rounds_beside_logs import RoundsBesideLogs
from clonos.protocol.recovery.marker import Marker, Round
from clonos.protocol.recovery.policy import Checkpoint
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.rollback.rounds import SafePoint, StoredRound

FIREWALL, READER = Origin.of(2, 0), Origin.of(3, 0)
START = Generation(4)


def stored(round: int) -> StoredRound:
    return StoredRound(Epoch(0), Round(round))


class Drawn:
    """Both begin where they have stored last."""

    def __init__(self) -> None:
        self.fails = False
        self.asked = 0

    def __call__(self, last: Mapping[Origin, StoredRound]) -> dict[Origin, SafePoint]:
        if self.fails:
            raise StorageUnavailable("the checkpoint cannot be read")
        self.asked += 1
        return {origin: SafePoint(at, OutputNumber(5)) for origin, at in last.items()}


def test_the_line_is_drawn_behind_a_complete_round_and_before_the_next_one() -> None:
    """Of those that keep what they have sent it says what may go; of the others the round does."""
    draw = Drawn()
    rounds = RoundsBesideLogs(RoundCoordinator([READER], interval=1.0), draw, [NodeId(2)])
    rounds.look(0.0, NO_EPOCH)
    rounds.told({FIREWALL: stored(70), READER: stored(1)})
    said = rounds.look(5.0, NO_EPOCH)
    assert (said.complete, said.begun, said.safe, draw.asked) == (stored(1), 1, {}, 0)
    said = rounds.look(5.0, NO_EPOCH)
    assert (said.begun, draw.asked) == (2, 1)
    assert said.safe == {FIREWALL: SafePoint(stored(70), OutputNumber(5))}
    assert said.safe_for(READER) == stored(1)
    rounds.told({FIREWALL: stored(71), READER: stored(1)})
    assert rounds.look(9.0, NO_EPOCH) == said and draw.asked == 1, "no other round is complete"


def test_no_round_begins_while_the_line_cannot_be_drawn() -> None:
    """A checkpoint of it would be among those that the line is drawn through, and need not be durable."""
    draw = Drawn()
    draw.fails = True
    rounds = RoundsBesideLogs(RoundCoordinator([READER], interval=1.0), draw, [NodeId(2)])
    rounds.look(0.0, NO_EPOCH)
    rounds.told({READER: stored(1)})
    assert rounds.look(5.0, NO_EPOCH).complete == stored(1)
    with pytest.raises(StorageUnavailable):
        rounds.look(5.0, NO_EPOCH)
    assert rounds.said.begun == 1
    draw.fails = False
    assert rounds.look(5.0, NO_EPOCH).begun == 2


def test_the_last_marker_has_these_bytes() -> None:
    marker = LastMarker(Generation(3), Round(300), OutputNumber(7))
    assert marker.to_bytes() == bytes.fromhex("c2 03 ac02 07")
    assert LastMarker.from_bytes(marker.to_bytes()) == marker
    for raw in (b"", b"\xc1\x03\x01\x07", marker.to_bytes() + b"\0"):
        with pytest.raises(LogCorrupt):
            LastMarker.from_bytes(raw)


def marked(round: int) -> Bundle:
    return Bundle([], [], [], markers=[Marker(READER.channel, Round(round), 0)])


def storing_first() -> Alignment:
    return Alignment([READER.channel, 99], RecoveryKind.EAGER)


def test_what_replaces_a_lost_process_knows_the_last_round_from_its_checkpoint() -> None:
    policy = storing_first()
    policy.send_marker(LastMarker(START, Round(2), OutputNumber(7)))
    kept = policy.take_checkpoint()
    again = storing_first()
    again.begin_epoch()
    again.resume(kept, START)
    assert again.last_marker == LastMarker(START, Round(2), OutputNumber(7))
    assert not list(again.arrive(marked(2))) and not again.is_aligning
    assert not list(again.arrive(marked(3))) and again.is_aligning
    again.begin_epoch()
    assert again.last_marker is None, "the next epoch begins without it"


def test_rounds_of_an_earlier_start_mean_nothing() -> None:
    """They are numbered anew: the first one would be passed over."""
    again = Alignment([READER.channel], RecoveryKind.EAGER)
    again.begin_epoch()
    again.resume(LastMarker(Generation(3), Round(2), OutputNumber(7)).to_bytes(), START)
    assert again.last_marker is None
    assert list(again.arrive(marked(1))) == [Checkpoint(Round(1))]
