"""Who shows what sinks hold of an epoch that has committed, where no process of theirs does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from test_protocol_query_coordinator import Recorded

from clonos.errors import ClonosError, Fenced, SinkUnavailable
from clonos.protocol.fence import Fence, Generation
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.protocol.recovery.marker import NO_ROUND
from clonos.protocol.recovery.rollback.committed_epochs import CommittedEpochs
from clonos.protocol.recovery.rollback.held_output import SinkCheckpoint
from clonos.protocol.recovery.rollback.rounds import StoredRound
from clonos.protocol.recovery.rollback.sink_progress import SinkEnd
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.steps import Steps, carry_out

ONE, OTHER = Origin.of(3, 0), Origin.of(3, 1)
COMMITTED = Epoch(4)


class Sinks(Recorded):
    """Two instances of one sink, which have ended epochs in start 2; `away` says what keeps one from being shown."""

    def __init__(self) -> None:
        super().__init__()
        self.generation = Generation(2)
        self.served: set[Origin] = set()
        self.away: dict[Origin, ClonosError] = {}
        self.shown: list[tuple[Origin, Fence]] = []
        self.begins: set[Origin] = set()  # to be served when it is claimed here
        self.ended = {ONE: COMMITTED, OTHER: Epoch(3)}

    def sink_ends(self, epoch: Epoch) -> Mapping[Origin, SinkEnd]:
        return {
            origin: SinkEnd(str(SnapshotName(ended, Fence.of(2, 7), 1, final=True)), SinkCheckpoint(ended))
            for origin, ended in self.ended.items()
        }

    def is_served(self, origin: Origin) -> bool:
        return origin in self.served

    def show_held(self, request: AttachRequest, committed: Epoch) -> Steps:
        assert (request.epoch, committed) == (COMMITTED + 1, COMMITTED)
        yield from ()
        self.shown.append((request.origin, request.fence))
        self.served |= self.begins
        if request.origin in self.away:
            raise self.away[request.origin]


def test_what_no_process_shows_is_shown_once() -> None:
    sinks = Sinks()
    assert carry_out(sinks.show_committed(COMMITTED))
    assert [origin for origin, _ in sinks.shown] == [ONE, OTHER]
    assert carry_out(sinks.show_committed(COMMITTED)) and len(sinks.shown) == 2


def test_a_process_that_serves_shows_it_itself_and_says_so() -> None:
    sinks = Sinks()
    sinks.served = {ONE}
    assert not carry_out(sinks.show_committed(COMMITTED))
    assert [origin for origin, _ in sinks.shown] == [OTHER]
    CommittedEpochs(sinks._shown).told({ONE: StoredRound(COMMITTED, NO_ROUND)})
    assert carry_out(sinks.show_committed(COMMITTED)) and len(sinks.shown) == 1


def test_a_process_that_takes_too_long_is_fenced() -> None:
    sinks = Sinks()
    sinks.served = {ONE}
    assert carry_out(sinks.show_committed(COMMITTED, takes_over=True))
    assert dict(sinks.shown)[ONE] > Fence.of(2, 7)


def test_one_that_is_away_holds_up_no_other_and_every_attempt_has_a_fence_of_its_own() -> None:
    sinks = Sinks()
    sinks.away = {ONE: SinkUnavailable("it is away")}
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="it is away"):
            carry_out(sinks.show_committed(COMMITTED))
    first, other, second = sinks.shown
    assert (first[0], other[0], second[0]) == (ONE, OTHER, ONE)
    assert Fence.of(2, 7) < first[1] < second[1] < Fence.of(2, 8), "below those of the next task attempt"


def test_what_another_process_has_claimed_is_left_to_it_if_it_serves() -> None:
    sinks = Sinks()
    sinks.away = {ONE: Fenced("a newer fence is there")}
    sinks.begins = {ONE}
    assert not carry_out(sinks.show_committed(COMMITTED))
    sinks.begins, sinks.served = set(), set()
    with pytest.raises(SinkUnavailable, match="'out' is claimed by a process that does not serve it"):
        carry_out(sinks.show_committed(COMMITTED))
