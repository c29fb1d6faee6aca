"""Requests to a replica server and its answers: what is sent is what is read, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from server_status import said

from clonos.errors import ProtocolError
from clonos.protocol.ids import Epoch, Origin, OutputNumber
from clonos.protocol.recovery.marker import Round
from clonos.protocol.recovery.rollback.rounds import Rounds, SafePoint, StoredRound
from clonos.wire.admin_messages import (
    AdminAnswer,
    AdminRequest,
    BeginGeneration,
    CommitEpoch,
    CommitTold,
    Done,
    ExchangeRounds,
    GetStatus,
    ReportFailure,
    SetHolders,
    Status,
    StopServer,
    StoredRounds,
    pack_answer,
    pack_request,
    parse_answer,
    parse_request,
)
from clonos.wire.server_status import parse_status

SAFE = SafePoint(StoredRound(Epoch(1), Round(4)), OutputNumber(17))
SAID = {"kind": "ExchangeRounds", "generation": 1, "begun": 2, "complete": [0, 1], "committed": 0}
REPORT = {
    "kind": "ReportFailure",
    "generation": 1,
    "node": 2,
    "instance": 0,
    "epoch": 3,
    "error": "E",
    "message": "m",
}


@pytest.mark.parametrize(
    "request_",
    [
        CommitEpoch(7),
        CommitEpoch(7, {Origin(1, 0): 100, Origin(63, 2): 0}),
        BeginGeneration(3),
        ExchangeRounds(3, Rounds()),
        ExchangeRounds(3, Rounds(safe={Origin.of(2, 1): SAFE})),
        ExchangeRounds(3, Rounds(Round(9), StoredRound(Epoch(2), Round(8)), Epoch(1))),
        SetHolders(()),
        SetHolders(("h:1", "h:2")),
        ReportFailure(Origin(2, 0), 1, 3, "E", "m"),
        GetStatus(),
        StopServer(),
    ],
)
def test_a_request_that_is_sent_is_read(request_: AdminRequest) -> None:
    assert parse_request(json.loads(json.dumps(pack_request(request_)))) == request_


@pytest.mark.parametrize(
    "answer",
    [
        Done(),
        CommitTold(4),
        StoredRounds({}),
        StoredRounds({Origin(2, 1): StoredRound(Epoch(3), Round(8))}),
        Status(parse_status(said(1), "answer")),
    ],
)
def test_an_answer_that_is_sent_is_read(answer: AdminAnswer) -> None:
    assert parse_answer(json.loads(json.dumps(pack_answer(answer)))) == answer


def test_golden_objects() -> None:
    """A jar of the same wire version has to write and read these."""
    assert parse_request(REPORT) == ReportFailure(Origin(2, 0), 1, 3, "E", "m")
    assert pack_request(CommitEpoch(7, {Origin(1, 0): 100})) == {
        "kind": "CommitEpoch",
        "epoch": 7,
        "truncation_points": [[1, 0, 100]],
    }
    assert pack_answer(CommitTold(4)) == {"kind": "CommitTold", "replicas": 4}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "Dance"},
        {"kind": ["StopServer"]},
        {"kind": "BeginGeneration", "generation": -1},
        {"kind": "CommitEpoch", "epoch": True, "truncation_points": []},
        {"kind": "CommitEpoch", "epoch": "x", "truncation_points": []},
        {"kind": "CommitEpoch", "epoch": 7},
        {"kind": "CommitEpoch", "epoch": 7, "truncation_points": [[1, 0]]},
        {"kind": "CommitEpoch", "epoch": 7, "truncation_points": [[0, 0, 5]]},
        {"kind": "CommitEpoch", "epoch": 7, "truncation_points": [[1, 0, "5"]]},
        {"kind": "ExchangeRounds", "generation": 1, "begun": 2, "complete": [0, 1]},
        {**SAID, "safe": {}},
        {**SAID, "safe": [[2, 0, 0, 1]]},
        {**SAID, "safe": [[2, 0, 0, -1, 1]]},
        {**SAID, "safe": [[2, 0, 0, 1, "1"]]},
        {"kind": "ExchangeRounds", "generation": 1, "begun": -1, "complete": [0, 1], "committed": 0},
        {"kind": "ExchangeRounds", "generation": 1, "begun": 2, "complete": [0], "committed": 0},
        {"kind": "ExchangeRounds", "generation": 1, "begun": 2, "complete": [-2, 1], "committed": 0},
        {"kind": "ExchangeRounds", "generation": 1, "begun": 2, "complete": [0, "1"], "committed": 0},
        {"kind": "ExchangeRounds", "generation": 1, "begun": 2, "complete": [0, 1], "committed": True},
        {"kind": "SetHolders", "addresses": "h:1"},
        {"kind": "SetHolders", "addresses": [1]},
        {**REPORT, "epoch": -1},
        {**REPORT, "node": 64},
        {**REPORT, "error": None},
    ],
)
def test_anything_else_is_no_request(said: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="admin request"):
        parse_request(said)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "CommitTold"},
        {"kind": "Status", "status": []},
        {"kind": "StopServer"},
        {"kind": "StoredRounds"},
        {"kind": "StoredRounds", "stored": [[2, 0, 1]]},
        {"kind": "StoredRounds", "stored": [[2, 0, 1, -1]]},
    ],
)
def test_anything_else_is_no_answer(said: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="admin answer"):
        parse_answer(said)
