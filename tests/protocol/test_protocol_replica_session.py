"""What a replica process and its conduits say to each other, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from clonos.errors import (
    ClonosError,
    FaultInjected,
    Fenced,
    ProtocolError,
    RecoveryTimeout,
    ReplicaLost,
    ResumeFailed,
    StorageUnavailable,
)
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.messages import End, Follow, Promote, Tick
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.replica_session import ReplicaSession, may_be_retried
from clonos.protocol.roles.steps import Steps, carry_out

FENCE = Fence.of(1)
REQUEST = AttachRequest(
    Origin(2, 0), epoch=3, fence=FENCE, fresh=True, is_retry=False, emitted_output=0, log_start=0, log=b""
)
STANDBY = replace(REQUEST, standby=True)
RAISED = Fence.of(1, 0, 1)
BUNDLE = Bundle([1], [1], [("row",)])


class Recorded:
    """The instance and the process in one: what they were asked for, in order."""

    progress = 0
    recovered_end = 17
    is_raised = True

    def __init__(self) -> None:
        self.said: list[Any] = []

    def _step(self, *what: Any) -> Steps:
        self.said.append(what)
        yield from ()

    def attach(self, request: AttachRequest) -> Steps:
        return self._step("attach", request.epoch)

    def open_epoch(self) -> Steps:
        return self._step("open epoch")

    def takes_another(self, rows: int) -> bool:
        return rows < 3

    def bundle(self, seq: int, records: Bundle, first: int | None = None) -> Steps:
        return self._step("bundle", seq) if first is None else self._step("bundles", first, seq)

    def tick(self) -> Steps:
        return self._step("tick")

    def end(self, last: int) -> Steps:
        yield from self._step("end", last)
        return 40

    def commit(self, epoch: int, truncation_points: Mapping[Origin, int]) -> None:
        self.said.append(("commit", epoch))

    def hear_rounds(self, rounds: Rounds) -> Steps:
        return self._step("rounds", rounds.begun)

    def conduit_is_gone(self) -> None:
        self.said.append(("conduit is gone",))

    def stand_by(self, request: AttachRequest) -> Steps:
        return self._step("stand by", request.epoch)

    def follow(self, log_start: int, log: bytes) -> Steps:
        return self._step("follow", log_start, log)

    def take_over(self, fence: Fence, emitted_output: int) -> Steps:
        return self._step("take over", fence, emitted_output)

    def end_standby(self, last: int) -> None:
        self.said.append(("end standby", last))

    def acknowledge(self) -> None:
        self.said.append(("acknowledge",))

    def welcome(self, log_end: int) -> None:
        self.said.append(("welcome", log_end))

    def follows(self, epoch: int) -> None:
        self.said.append(("follows", epoch))

    def is_granted(self, promoted: AttachRequest) -> Steps:
        yield from self._step("grant", promoted.fence, promoted.standby)
        return self.is_raised

    def at_end(self, epoch: int) -> None:
        self.said.append(("at end", epoch))

    def ended(self, emitted_output: int) -> None:
        self.said.append(("ended", emitted_output))


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@pytest.fixture
def session(recorded: Recorded) -> ReplicaSession:
    return ReplicaSession(recorded, recorded)


def test_only_a_replica_takes_bundles_together(session: ReplicaSession, recorded: Recorded) -> None:
    carry_out(session.attach(replace(REQUEST, standby=True)))
    assert not session.takes_another(1), "a standby's records wait for its log anyway"
    carry_out(session.hear(Promote(REQUEST.fence, 0)))
    assert session.takes_another(2)
    assert not session.takes_another(3)
    carry_out(session.bundle(3, BUNDLE, 1))
    assert recorded.said[-1] == ("bundles", 1, 3)


def test_an_epoch_of_a_replica(session: ReplicaSession, recorded: Recorded) -> None:
    carry_out(session.attach(REQUEST))
    carry_out(session.bundle(1, BUNDLE))
    carry_out(session.hear(Tick()))
    assert session.is_attached
    carry_out(session.hear(End(1)))
    assert not session.is_attached
    assert recorded.said == [
        ("attach", 3),
        ("welcome", 17),
        ("open epoch",),
        ("bundle", 1),
        ("tick",),
        ("end", 1),
        ("at end", 3),
        ("ended", 40),
    ]


def test_an_epoch_of_a_standby(session: ReplicaSession, recorded: Recorded) -> None:
    carry_out(session.attach(STANDBY))
    carry_out(session.hear(Follow(0, b"log")))
    carry_out(session.hear(replace(STANDBY, fresh=False)))
    carry_out(session.hear(End(4)))
    assert not session.is_attached
    assert recorded.said == [
        ("stand by", 3),
        ("welcome", 17),
        ("follows", 3),
        ("follow", 0, b"log"),
        ("stand by", 3),
        ("acknowledge",),
        ("end standby", 4),
        ("at end", 3),
    ]


def test_a_standby_is_promoted_and_goes_on_as_the_replica(
    session: ReplicaSession, recorded: Recorded
) -> None:
    carry_out(session.attach(STANDBY))
    assert session.stands_by and not session.gives_way
    del recorded.said[:]
    carry_out(session.hear(Promote(RAISED, 9)))
    assert not session.stands_by and session.gives_way
    carry_out(session.hear(Tick()))
    assert recorded.said == [("grant", RAISED, False), ("welcome", 17), ("take over", RAISED, 9), ("tick",)]


def test_a_standby_whose_fence_is_not_raised_is_no_replica(
    session: ReplicaSession, recorded: Recorded
) -> None:
    recorded.is_raised = False
    carry_out(session.attach(STANDBY))
    with pytest.raises(Fenced):
        carry_out(session.hear(Promote(RAISED, 9)))
    assert session.stands_by


def test_what_is_not_for_it_is_refused(session: ReplicaSession) -> None:
    carry_out(session.attach(REQUEST))
    with pytest.raises(ProtocolError, match="Follow is not for a replica"):
        carry_out(session.hear(Follow(0, b"log")))
    carry_out(session.attach(STANDBY))
    with pytest.raises(ProtocolError, match="Tick is not for a standby"):
        carry_out(session.hear(Tick()))


def test_only_a_standby_ends_with_its_conduit(session: ReplicaSession, recorded: Recorded) -> None:
    carry_out(session.attach(REQUEST))
    session.conduit_is_gone()
    assert not session.is_attached
    assert recorded.said[-1] == ("conduit is gone",), "the instance sends nothing any more"
    carry_out(session.attach(STANDBY))
    with pytest.raises(ReplicaLost):
        session.conduit_is_gone()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StorageUnavailable("full"), True),
        (ProtocolError("no"), False),
        (ResumeFailed("gone"), False),
        (FaultInjected("scripted"), False),
        (RecoveryTimeout("no answer"), False),
    ],
)
def test_what_another_process_may_come_further_with(error: ClonosError, expected: bool) -> None:
    assert may_be_retried(error) is expected
