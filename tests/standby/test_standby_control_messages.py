"""Messages between a replica server and its replicas: what is sent is what is read, and nothing else is taken."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from clonos.errors import ProtocolError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin, OutputNumber
from clonos.protocol.recovery.causal.replacement import Failover
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.rounds import Rounds, SafePoint, StoredRound
from clonos.protocol.roles.death import Ending, classify_death
from clonos.wire.messages import Hello
from clonos_standby.server.control_messages import (
    AskPromotion,
    Assign,
    AtEnd,
    CheckpointStored,
    Committed,
    Connect,
    ControlMessage,
    Failed,
    Figures,
    Follows,
    Granted,
    Recovered,
    RoundsSaid,
    pack_control,
    parse_control,
)

HELLO = Hello("t", 1, 2, 0, 3, Fence.of(1), True, failovers=(Failover(Fence.of(1, 2), 70),))
DEATH = classify_death(
    Ending(
        Origin(2, 0), 99, code=None, signal="SIGKILL", killed_for=None, at=12.5, uptime=3.25, stderr="last"
    )
)


@pytest.mark.parametrize(
    "message",
    [
        Assign(Origin(2, 1)),
        Connect(HELLO, None),
        Connect(HELLO, DEATH),
        Committed(7, {Origin(1, 0): 100}),
        RoundsSaid(Rounds()),
        RoundsSaid(Rounds(safe={Origin(2, 1): SafePoint(StoredRound(Epoch(1), Round(4)), OutputNumber(17))})),
        RoundsSaid(Rounds(Round(9), StoredRound(Epoch(2), Round(8)), Epoch(1))),
        CheckpointStored(3, StoredRound(Epoch(2), Round(9))),
        Granted(True),
        Granted(False, cannot="the disk is full"),
        Recovered({"ms": 12.0, "phases": {"state": 3.0}, "fresh": False}),
        Figures({"records": 7}),
        Follows(3),
        AskPromotion(HELLO),
        AtEnd(3, None),
        AtEnd(3, {"records": 8}),
        Failed(1, "SinkError", "no"),
    ],
)
def test_what_is_sent_is_what_is_read(message: ControlMessage) -> None:
    body = msgpack.packb(pack_control(message), use_bin_type=True)
    assert parse_control(msgpack.unpackb(body, raw=False, strict_map_key=False)) == message


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "Exit"},
        {"kind": "Follows"},
        {"kind": "Committed", "epoch": 7, "truncation_points": {"1/0": 100}},
        {"kind": "Follows", "epoch": 3, "more": 1},
        {"kind": "Assign", "origin": 5},
        {"kind": "Connect", "hello": {}, "previous": None},
        {"kind": ["Follows"], "epoch": 3},
    ],
)
def test_anything_else_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        parse_control(said)
