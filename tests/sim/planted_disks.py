"""Bugs of what comes back with a disk, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from planted import OTHERS, PASSIVE, STANDBYS, Planted, planted

from clonos.protocol.recovery.causal import needed_log, retrieval
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.recovery.causal.holding import HolderReply
from clonos.protocol.roles.incarnation import Incarnation
from clonos.sim import disk
from clonos.sim.disk import Batch, Disk, LogStore
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch

# ------------------------------------------------------------------- damage


def a_damaged_store_serves_nothing(patch: Patch) -> None:
    """What can be read beside the damage is ignored. The store still says that something was there."""

    def readable(self: LogStore) -> list[Batch]:
        return [] if any(batch.damaged for batch in self.batches) else self.batches

    patch.setattr(LogStore, "readable", readable)


def a_store_in_the_place_of_a_damaged_one_keeps_nothing_received(patch: Patch) -> None:
    """What comes after the damage was never in what is damaged."""
    real = LogStore.salvaged

    class Deaf(LogStore):
        def append(self, deltas: Sequence[bytes], own: Segment | None) -> None:
            super().append((), own)

    def salvaged(self: LogStore) -> LogStore:
        new = real(self)
        new.__class__ = Deaf
        return new

    patch.setattr(LogStore, "salvaged", salvaged)


# ----------------------------------------------------------------- old copies


def an_old_copy_of_the_own_store_is_enough(patch: Patch) -> None:
    """A new attempt takes what it finds at hand for its whole log."""
    real = retrieval.Retrieval.put_together
    patch.setattr(
        retrieval.Retrieval, "put_together", lambda self, answers, *, where: real(self, [], where=where)
    )


def an_old_copy_says_that_it_is_whole(patch: Patch) -> None:
    """As the store did that it is a copy of, so that damage elsewhere is not taken for a gap."""
    real = LogStore.copy

    def copy(self: LogStore) -> LogStore:
        copied = real(self)
        copied.whole_since = self.whole_since
        return copied

    patch.setattr(LogStore, "copy", copy)


# ----------------------------------------------------------- copies of a log


def copied_log_that_no_instance_depends_on_is_repeated(patch: Patch) -> None:
    patch.setattr(retrieval, "needed_end", lambda start, recorded, replies: start + len(recorded))


def damage_anywhere_is_a_reason_to_repeat_all(patch: Patch) -> None:
    """As if an instance could depend on those behind it."""

    def may_be_depended_on(_self: retrieval.Retrieval, replies: Iterable[HolderReply]) -> bool:
        return any(reply.damaged for reply in replies)

    patch.setattr(retrieval.Retrieval, "_may_be_depended_on", may_be_depended_on)


def damage_behind_is_a_reason_to_repeat_all(patch: Patch) -> None:
    """As if those behind could have run on while this instance begins."""

    def may_be_depended_on(self: retrieval.Retrieval, replies: Iterable[HolderReply]) -> bool:
        return any(damage.may_depend_on(self.origin) for reply in replies for damage in reply.damaged)

    patch.setattr(retrieval.Retrieval, "_may_be_depended_on", may_be_depended_on)


def a_copy_counts_as_written_live(patch: Patch) -> None:
    """A standby that was the replica before does not say where its copy begins."""
    real = disk.begun
    patch.setattr(disk, "begun", lambda known, one: tuple(known) if one.copy else real(known, one))


def what_effects_depend_on_is_done_anew(patch: Patch) -> None:
    """A copy of a log that says what was done is repeated, and the input that it had is not."""
    real = Incarnation._repeats_all

    def repeats_all(self: Incarnation[Any], bound: Any) -> bool:
        return real(self, bound) and not self._may_begin_anew(bound)

    patch.setattr(Incarnation, "_repeats_all", repeats_all)
    what_has_acted_is_done_anew(patch)  # which saves most runs


def what_has_acted_is_done_anew(patch: Patch) -> None:
    """The checkpoint is an older copy, from before it said that there are effects; the log says so still."""
    patch.setattr(needed_log, "_acted_end", lambda start, recorded: start)


def chunk_that_is_cut_off_is_believed(patch: Patch) -> None:
    """A log that was written anew inside a chunk ends there, once the page with the rest of the chunk is damaged."""
    patch.setattr(retrieval, "whole_chunks", lambda log: log)


# --------------------------------------------------------------------- fences


def fences_are_not_synced(patch: Patch) -> None:
    """They count before they are on disk, and a power failure forgets them."""
    patch.setattr(Disk, "_sync_fences", lambda self: None)


OLD: dict[str, Any] = {**OTHERS, "depth": FULL, "effects": False}
HOSTS: dict[str, Any] = {**STANDBYS, "executors": True, "spreads": True}
OLD_RATES = {Fault.OLD_DISK: 0.02}
STORES_LOST = {Fault.STORE_LOST: 0.5, Fault.QUERY_RESTART: 0.02}
COPIES: dict[str, Any] = {
    **PASSIVE,
    "executors": True,
    "realtime": True,
    "faults": 12,
    "epoch": 12,
    "records": 60,
}
TORN = {Fault.POWER_LOSS: 0.03, Fault.TORN_TAIL: 0.5}
BEHIND: dict[str, Any] = {**COPIES, "faults": 25, "epoch": 8, "records": 60}
DISKS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(
            a_damaged_store_serves_nothing,
            first=5,
            rates={Fault.STORE_PAGE: 0.3, Fault.QUERY_RESTART: 0.02},
            **OLD,
        ),
        planted(
            a_store_in_the_place_of_a_damaged_one_keeps_nothing_received,
            first=10,
            rates={Fault.STORE_PAGE: 0.3, Fault.REPLICA_CRASH: 0.02},
            **OLD,
        ),
        planted(
            chunk_that_is_cut_off_is_believed,
            first=313,
            rates={
                Fault.STORE_PAGE: 0.5,
                Fault.QUERY_RESTART: 0.03,
                Fault.HOST_LOST: 0.03,
                Fault.STORE_LOST: 0.3,
            },
            **{**STANDBYS, "executors": True, "realtime": True, "faults": 60, "epoch": 12, "records": 60},
        ),
        planted(an_old_copy_of_the_own_store_is_enough, rates=OLD_RATES, **OLD),
        planted(
            an_old_copy_says_that_it_is_whole, first=14, rates=OLD_RATES | {Fault.SINK_LOG_PAGE: 0.5}, **OLD
        ),
        planted(copied_log_that_no_instance_depends_on_is_repeated, first=341, rates=STORES_LOST, **COPIES),
        planted(
            a_copy_counts_as_written_live,
            first=188,
            rates={Fault.HOST_LOST: 0.04, Fault.SERVER_CRASH: 0.02},
            **{**COPIES, "faults": 25, "epoch": 4, "records": 25},
        ),
        planted(damage_behind_is_a_reason_to_repeat_all, first=403, rates=TORN, **BEHIND),
        planted(
            damage_anywhere_is_a_reason_to_repeat_all,
            first=69,
            rates=TORN,
            **BEHIND,
        ),
        planted(
            what_effects_depend_on_is_done_anew,
            first=217,
            rates={Fault.SERVER_CRASH: 0.02, Fault.QUERY_RESTART: 0.02},
            **{**STANDBYS, "effects": True, "realtime": True},
        ),
        planted(
            what_has_acted_is_done_anew,
            first=179,
            rates={
                Fault.CHECKPOINT_OLDER: 0.8,
                Fault.DRIVER_LOSS: 0.02,
                Fault.STORE_LOST: 0.4,
                Fault.TASK_CRASH: 0.01,
            },
            **{**STANDBYS, "effects": True, "realtime": True, "faults": 60, "epoch": 8, "records": 34},
        ),
        planted(
            fences_are_not_synced,
            first=185,
            rates={Fault.POWER_LOSS: 0.03, Fault.TASK_ZOMBIE: 0.1},
            **{**HOSTS, "realtime": False, "faults": 60, "records": 40},
        ),
    )
}
