"""Planted bugs of changing a program over its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planted import Patch, Planted, blind, planted

from clonos.protocol.engine.epoch_boundary import EpochBoundary
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.delta_journal import FULL
from clonos.protocol.versions import binding, upgrade
from clonos.protocol.versions.programs import Programs
from clonos.protocol.versions.upgrade import History, OpenEpoch, Upgrade
from clonos.sim import programs as sim_programs
from clonos.sim.plan import Fault
from clonos.sim.programs import Deployment


def new_version_repeats_the_old_epoch(patch: Patch) -> None:
    """A replay goes by the schedule of the program that is there, and not by what is recorded."""
    blind(patch)
    _nothing_is_ever_seen(patch)
    real = EpochBoundary.begin

    def begin(self: EpochBoundary, epoch: int, seed: int, program: str, **named: Any) -> None:
        assert self._programs is not None
        real(self, epoch, seed, self._programs.scheduled(epoch), **named)

    patch.setattr(EpochBoundary, "begin", begin)


def _nothing_is_ever_seen(patch: Patch) -> None:
    def look(number: int, *remains: Any, **how: Any) -> OpenEpoch:
        return OpenEpoch(number, begun=False, seen=number - 1)

    patch.setattr(sim_programs, "open_epoch", look)


def binding_is_accepted_while_an_epoch_is_open(patch: Patch) -> None:
    _nothing_is_ever_seen(patch)


def remains_of_the_open_epoch_are_not_dropped(patch: Patch) -> None:
    real = upgrade.take_over

    def keeps(*given: Any, **how: Any) -> Upgrade:
        made = real(*given, **how)
        return Upgrade(made.history, made.changes, made.since, drops=False)

    patch.setattr(sim_programs, "take_over", keeps)


def version_changes_in_the_middle_of_an_epoch(patch: Patch) -> None:
    """A replica that is restored inside an epoch goes on with the newest function."""
    real = Programs.stands

    def stands(self: Programs, said: str) -> None:
        real(self, said)
        if self._running is not None and self._version != self._current:
            self.enter(self._said(self._current))

    patch.setattr(Programs, "stands", stands)


def state_is_migrated_twice(patch: Patch) -> None:
    """A snapshot does not say which version wrote it."""
    patch.setattr(Programs, "written", property(lambda self: ""))


def state_is_not_migrated_after_a_restore(patch: Patch) -> None:
    real = Programs.stands

    def stands(self: Programs, said: str) -> None:
        real(self, said)
        self._version = None
        self._running = self._running or None

    patch.setattr(Programs, "stands", stands)


def version_of_an_epoch_is_not_recorded(patch: Patch) -> None:
    real = codec.append_boundary
    patch.setattr(
        codec,
        "append_boundary",
        lambda out, epoch, seed, program="", **named: real(out, epoch, seed, **named),
    )


def an_earlier_version_need_not_bring_state_up_to_date(patch: Patch) -> None:
    """What has to be repeated of its first epoch meets the state of the version before."""
    real = History.schedule
    patch.setattr(upgrade, "_check_migrated_alike", lambda *given: None)
    patch.setattr(History, "schedule", lambda self, node: replace(real(self, node), migrates={}))
    patch.setattr(Deployment, "_check_migrates", lambda self, history: None)


def readable_rest_of_a_damaged_store_counts_as_all_of_it(patch: Patch) -> None:
    real = Deployment._look

    def look(self: Deployment, number: int) -> OpenEpoch:
        replaced = [store for store in self._world.stores() if store.damaged_before]
        for store in replaced:
            store.damaged_before = False
        try:
            return real(self, number)
        finally:
            for store in replaced:
                store.damaged_before = True

    patch.setattr(Deployment, "_look", look)


def zone_is_not_bound(patch: Patch) -> None:
    patch.setattr(binding, "_query_changes", lambda bound, program: iter(()))


CHANGES = {"faults": 30, "impure": False, "executors": False, "depth": FULL, "poison": 0}
RATES = {Fault.PROGRAM_CHANGED: 0.02, Fault.REPLICA_CRASH: 0.01}
DAMAGE = {Fault.PROGRAM_CHANGED: 0.05, Fault.REPLICA_CRASH: 0.08, Fault.STORE_PAGE: 0.3}

CHANGING: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(new_version_repeats_the_old_epoch, first=2, rates=RATES, **CHANGES),
        planted(binding_is_accepted_while_an_epoch_is_open, first=10, rates=RATES, **CHANGES),
        planted(remains_of_the_open_epoch_are_not_dropped, first=1340, rates=RATES, **CHANGES),
        planted(version_changes_in_the_middle_of_an_epoch, rates=RATES, **{**CHANGES, "snapshot_rate": 0.3}),
        planted(state_is_migrated_twice, first=12, rates=RATES, **{**CHANGES, "snapshot_rate": 0.3}),
        planted(state_is_not_migrated_after_a_restore, first=9, rates=RATES, **CHANGES),
        planted(an_earlier_version_need_not_bring_state_up_to_date, first=88, rates=RATES, **CHANGES),
        planted(version_of_an_epoch_is_not_recorded, rates=RATES, **CHANGES),
        planted(
            readable_rest_of_a_damaged_store_counts_as_all_of_it,
            first=26,
            rates=DAMAGE,
            **{**CHANGES, "effects": True, "realtime": False, "standbys": 0, "faults": 60},
        ),
        planted(zone_is_not_bound, first=21, rates=RATES, **CHANGES),
    )
}
