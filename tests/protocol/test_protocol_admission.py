"""Whom a replica server serves, and with which process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Origin
from clonos.protocol.roles.admission import admits, goes_on
from clonos.protocol.roles.attach_request import AttachRequest

START = Fence.of(1)
ATTEMPT = Fence.of(0, 1)
LAST = AttachRequest(
    Origin(2, 0),
    epoch=3,
    fence=Fence(START + ATTEMPT),
    fresh=True,
    is_retry=False,
    emitted_output=0,
    log_start=0,
    log=b"",
)
NEXT = replace(LAST, epoch=4, fence=Fence(START + 2 * ATTEMPT))


def test_a_fence_is_shown_once_and_a_standbys_as_often_as_its_primarys() -> None:
    assert admits(START, standby=False, highest=-1, generation=1)
    assert not admits(START, standby=False, highest=START, generation=1)
    assert admits(START, standby=True, highest=START, generation=1)
    assert not admits(START, standby=True, highest=START + 1, generation=1)


@pytest.mark.parametrize("standby", [False, True])
def test_no_conduit_of_a_start_that_is_over_is_served(standby: bool) -> None:
    assert not admits(START + 99, standby=standby, highest=-1, generation=2)


def test_a_process_goes_on_from_the_end_of_an_epoch() -> None:
    assert goes_on(NEXT, last=LAST, at_end=3)
    assert goes_on(replace(NEXT, epoch=9), last=LAST, at_end=3)
    assert not goes_on(NEXT, last=LAST, at_end=None)
    assert not goes_on(replace(NEXT, epoch=3), last=LAST, at_end=3)
    assert not goes_on(NEXT, last=None, at_end=None)


def test_what_was_lost_or_may_have_run_elsewhere_begins_anew() -> None:
    assert not goes_on(replace(NEXT, fresh=False), last=LAST, at_end=3)
    assert not goes_on(replace(NEXT, is_retry=True), last=LAST, at_end=3)
    assert not goes_on(replace(NEXT, fence=Fence(2 * START)), last=LAST, at_end=3)
    assert not goes_on(replace(NEXT, fence=NEXT.fence.next()), last=LAST, at_end=3)


def test_a_standby_may_still_have_the_end_of_its_epoch_before_it() -> None:
    follows, then = replace(LAST, standby=True), replace(NEXT, standby=True)
    assert goes_on(then, last=follows, at_end=None)
    assert goes_on(replace(then, is_retry=True), last=follows, at_end=None)
    assert not goes_on(then, last=LAST, at_end=None)
    assert not goes_on(NEXT, last=follows, at_end=None)
