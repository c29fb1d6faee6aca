"""Bugs that only a world as bad as the real one finds, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from planted import OTHERS, Planted, planted

from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.roles.lease import HostLease
from clonos.protocol.roles.server_silence import ServerSilence
from clonos.sim import disk
from clonos.sim.disk import LogStore
from clonos.sim.leases import Hosting
from clonos.sim.partitions import Place
from clonos.sim.plan import Fault
from clonos.sim.world import Service

Patch = pytest.MonkeyPatch

# ---------------------------------------------------------------------- power


def sync_does_not_reach_the_disk(patch: Patch) -> None:
    """An effect waits for it, and the disk has only taken note."""
    patch.setattr(LogStore, "_is_on_disk", lambda self: None)


def what_lies_behind_a_hole_is_believed(patch: Patch) -> None:
    """The newer write-ahead log is read although the older one has lost its end."""

    def lose_power(self: LogStore, rng: Random, *, torn: bool) -> None:
        before, after = sorted(rng.choices(range(len(self._not_synced) + 1), k=2))
        del self._not_synced[before:after]
        real(self, Whole(), torn=torn)

    class Whole(Random):
        def randint(self, low: int, high: int) -> int:
            return high

    real = LogStore.lose_power
    patch.setattr(LogStore, "lose_power", lose_power)


# ------------------------------------------------------------- partitions, clocks


def renewals_count_whose_answers_are_lost(patch: Patch) -> None:
    """One way is open: the server goes on, and the driver goes on without it."""
    real = HostLease.renew

    def renew(self: HostLease, heard: int, now: float) -> int:
        self.ends = max(self.ends, now + self._length)
        return real(self, heard, now)

    patch.setattr(HostLease, "renew", renew)


def lease_is_measured_with_the_time_of_day(patch: Patch) -> None:
    """Which another host's has nothing to do with, and which stands still."""
    patch.setattr(Hosting, "_now", property(lambda self: self._world.clocks[Place.SECOND_HOST].day))


def holders_that_cannot_be_reached_are_passed_over(patch: Patch) -> None:
    """No answer is taken for an empty one."""
    patch.setattr(
        Service,
        "counts",
        property(lambda self: self.world.counts(self.host) and self.refuses(Place.DRIVER_HOST) is None),
    )


def logs_of_a_host_that_was_away_count(patch: Patch) -> None:
    """The query has gone on without it, and finds there what instances have given up meanwhile."""
    patch.setattr(disk, "sets_aside", lambda kept, asked: False)


# ------------------------------------------------------------------- servers


def server_that_does_not_answer_is_waited_for(patch: Patch) -> None:
    patch.setattr(ServerSilence, "is_hung", False)


POWER: dict[str, Any] = {**OTHERS, "depth": FULL, "standbys": 0, "faults": 30}
POWER_RATES = {Fault.POWER_LOSS: 0.02, Fault.REPLICA_CRASH: 0.004}
APART: dict[str, Any] = {**OTHERS, "depth": FULL, "standbys": 1, "effects": False, "faults": 30}
APART_RATES = {Fault.PARTITION: 0.03, Fault.QUERY_RESTART: 0.01}

AWAY: dict[str, Any] = {**APART, "faults": 300, "records": 100, "epoch": 60, "realtime": False}
AWAY_RATES = {Fault.PARTITION: 0.15, Fault.DRIVER_LOSS: 0.05, Fault.STORE_LOST: 0.6, Fault.TASK_CRASH: 0.01}

HUNG_RATES = {Fault.SERVER_STOP: 0.01, Fault.REPLICA_CRASH: 0.01}

WORLD: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(sync_does_not_reach_the_disk, first=2, rates=POWER_RATES, **{**POWER, "effects": True}),
        planted(what_lies_behind_a_hole_is_believed, rates=POWER_RATES, **{**POWER, "effects": False}),
        planted(renewals_count_whose_answers_are_lost, first=6, rates=APART_RATES, **APART),
        planted(
            lease_is_measured_with_the_time_of_day,
            first=11,
            rates=APART_RATES | {Fault.HOST_CLOCK: 0.03},
            clocks=True,
            **APART,
        ),
        planted(
            holders_that_cannot_be_reached_are_passed_over,
            first=14,
            rates=APART_RATES | {Fault.STORE_LOST: 0.3, Fault.REPLICA_CRASH: 0.01},
            **APART,
        ),
        planted(logs_of_a_host_that_was_away_count, first=251, rates=AWAY_RATES, **AWAY),
        planted(server_that_does_not_answer_is_waited_for, rates=HUNG_RATES, **OTHERS),
    )
}
