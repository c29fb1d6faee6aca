"""Bugs of holders that cannot read what they hold, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from functools import partial

import pytest
from planted import OTHERS, STANDBYS, Planted, planted

from clonos.protocol.recovery.causal import retrieval
from clonos.protocol.recovery.causal.asking import Asking
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.recovery.causal.holding import HolderReply
from clonos.sim.disk import LogStore
from clonos.sim.plan import Fault
from clonos.sim.world import World

Patch = pytest.MonkeyPatch

UNREADABLE = {Fault.DIRECTORY_UNREADABLE: 0.2, Fault.QUERY_RESTART: 0.02, Fault.STORE_LOST: 0.5}
DAMAGED = {Fault.STORE_PAGE: 0.3, Fault.QUERY_RESTART: 0.02, Fault.REPLICA_CRASH: 0.02}


def _takes_for_empty(patch: Patch, word: str) -> None:
    real = Asking.refused

    def refused(self: Asking, holder: str, why: str) -> None:
        if word in why:
            self.answered(holder, HolderReply(holder))
        else:
            real(self, holder, why)

    patch.setattr(Asking, "refused", refused)


unreadable_counts_as_empty = partial(_takes_for_empty, word="cannot be read")
a_half_reply_counts_as_empty = partial(_takes_for_empty, word="broke off")
busy_counts_as_empty = partial(_takes_for_empty, word="busy")


def an_unknown_list_of_holders_counts_as_no_other_holder(patch: Patch) -> None:
    patch.setattr(
        World, "holders", property(lambda self: self.services[:1] if self.unlisted else self.services)
    )


def damage_is_not_looked_at(patch: Patch) -> None:
    patch.setattr(retrieval, "check_complete", lambda *given, **where: None)


def another_history_is_as_good(patch: Patch) -> None:
    """A holder that is not sent the bytes of a log is asked how far it depends on it, and not on which history."""
    patch.setattr(retrieval, "check_history", lambda *given, **where: None)


def a_damaged_store_is_taken_for_one_that_was_never_written(patch: Patch) -> None:
    """What was there, effects included, is forgotten, and no recovery hears that something was."""
    patch.setattr(LogStore, "salvaged", lambda self: LogStore(self.owner))


OVERTAKEN = {
    Fault.STORE_LOST: 0.36,
    Fault.OLD_DISK: 0.01,
    Fault.REPLICA_CRASH: 0.007,
    Fault.REPLICA_STOP: 0.0024,
    Fault.CONTROL_DROP: 0.18,
    Fault.SINK_LATE: 0.036,
}
SHARED = {"depth": FULL, "effects": False, **OTHERS}
ACTING = {"depth": FULL, "effects": True, **OTHERS, "faults": 30}
HOLDING: dict[str, Planted] = {
    "unreadable_counts_as_empty": planted(unreadable_counts_as_empty, first=29, rates=UNREADABLE, **SHARED),
    "a_half_reply_counts_as_empty": planted(
        a_half_reply_counts_as_empty, first=104, rates={**UNREADABLE, Fault.REPLY_CUT: 0.3}, **SHARED
    ),
    "busy_counts_as_empty": planted(
        busy_counts_as_empty, rates={**UNREADABLE, Fault.SERVICE_BUSY: 0.3}, **SHARED
    ),
    "an_unknown_list_of_holders_counts_as_no_other_holder": planted(
        an_unknown_list_of_holders_counts_as_no_other_holder,
        first=56,
        rates={**UNREADABLE, Fault.HOLDERS_UNKNOWN: 0.3},
        **SHARED,
    ),
    "another_history_is_as_good": planted(
        another_history_is_as_good,
        first=624,
        rates=OVERTAKEN,
        snapshot_rate=0.3,
        window=4,
        **{**STANDBYS, "depth": 0, "faults": 150, "realtime": True, "executors": True, "spreads": True},
        records=104,
        epoch=10,
        bundle=40,
    ),
    "damage_is_not_looked_at": planted(damage_is_not_looked_at, rates=DAMAGED, **ACTING),
    "a_damaged_store_is_taken_for_one_that_was_never_written": planted(
        a_damaged_store_is_taken_for_one_that_was_never_written, rates=DAMAGED, **ACTING
    ),
}
