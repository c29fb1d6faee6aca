"""Planted bugs about resuming inside an epoch that is run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from planted import OTHERS, Planted, planted
from planted_batches import plan_of_an_epoch_is_not_kept

from clonos.protocol.destination import Destinations
from clonos.protocol.engine.output_stage import OutputStage
from clonos.protocol.ids import LOG_BEGIN, Origin
from clonos.protocol.line import snapshot_name
from clonos.protocol.line.recovery_line import RecoveryLine, Standing
from clonos.protocol.line.snapshot_name import Since, SnapshotName
from clonos.protocol.recovery.causal import resumption
from clonos.protocol.recovery.causal.delta_journal import FULL, Receipts
from clonos.protocol.roles import incarnation, query_coordinator
from clonos.protocol.roles.query_coordinator import QueryCoordinator
from clonos.protocol.topology import Topology
from clonos.sim.checkpoint import Snapshots
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def sender_may_be_ahead_of_its_receivers(patch: Patch) -> None:
    real = query_coordinator.recovery_line

    def recovery_line(
        topology: Topology, standings: Mapping[Origin, Standing], *given: Any, **named: Any
    ) -> Any:
        ahead = {
            origin: replace(found, inside=[replace(point, sent={}) for point in found.inside])
            for origin, found in standings.items()
        }
        return real(topology, ahead, *given, **named)

    patch.setattr(query_coordinator, "recovery_line", recovery_line)


def suppressed_rows_do_not_count_as_sent(patch: Patch) -> None:
    real = OutputStage.release

    def release(self: OutputStage, encoded: Any, produced: list[Any], destinations: Destinations) -> None:
        before, suppressed = dict(self.sent), self.suppressed_upto - self.numbered
        real(self, encoded, produced, destinations)
        if suppressed >= len(produced):
            self.sent = before

    patch.setattr(OutputStage, "release", release)


def snapshots_of_an_overtaken_attempt_count(patch: Patch) -> None:
    """And what they depend on is not checked."""

    def of_any_attempt(names: Iterable[SnapshotName], epoch: int, claimed: int) -> list[SnapshotName]:
        return [name for name in sorted(names) if name.epoch == epoch and not name.final]

    patch.setattr(snapshot_name, "of_newest_attempt", of_any_attempt)
    patch.setattr(incarnation, "check_resumable", lambda *given, **named: None)
    patch.setattr(incarnation, "check_dependencies", lambda *given, **named: None)


def determinants_that_are_not_held_are_depended_on(patch: Patch) -> None:
    patch.setattr(Receipts, "covers", lambda self, origin, start, end: True)


def own_log_before_the_snapshot_is_not_needed(patch: Patch) -> None:
    patch.setattr(
        incarnation,
        "check_resumable",
        lambda snapshot, before, held, truncation_points, **named: resumption.check_resumable(
            replace(snapshot, log_digest=0, log_offset=snapshot.epoch_log_offset),
            before,
            held,
            truncation_points,
            **named,
        ),
    )
    real = incarnation.retrieve
    patch.setattr(incarnation, "retrieve", lambda *given, since, **named: real(*given, since=None, **named))


def replacement_forgets_where_the_attempt_resumed(patch: Patch) -> None:
    patch.setattr(Snapshots, "beginning", lambda self, epoch, fence, since: self.final(epoch - 1, since))


def what_an_overtaken_start_made_of_an_epoch_counts(patch: Patch) -> None:
    """Spark has lost the epoch's offsets, and there is nothing for the instance in what it draws instead."""
    plan_of_an_epoch_is_not_kept(patch)
    patch.setattr(Since, "counts", lambda self, name: True)


def what_others_resume_with_is_done_anew(patch: Patch) -> None:
    """What held the sender's log was not synced, and how far the receiver's snapshot depends on it is not asked."""
    patch.setattr(RecoveryLine, "needed", lambda self, origin, **of: LOG_BEGIN)


def an_older_copy_of_the_checkpoint_is_resumed_from(patch: Patch) -> None:
    """What starts that it does not know of did instead is not in its snapshots."""
    patch.setattr(QueryCoordinator, "_is_older_copy", lambda self, last: False)


RESTARTS = {
    **OTHERS,
    "realtime": True,
    "resumes": True,
    "effects": False,
    "depth": FULL,
    "snapshot_rate": 0.3,
    "faults": 40,
}
RATES = {Fault.QUERY_RESTART: 0.03, Fault.REPLICA_CRASH: 0.005}
LOST = {**RATES, Fault.STORE_LOST: 0.3, Fault.STORE_TAIL: 0.3}

RESUMING: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(sender_may_be_ahead_of_its_receivers, rates=RATES, **RESTARTS),
        planted(suppressed_rows_do_not_count_as_sent, first=30, rates=RATES, **RESTARTS),
        planted(snapshots_of_an_overtaken_attempt_count, first=23, rates=LOST, **RESTARTS),
        planted(determinants_that_are_not_held_are_depended_on, first=1873, rates=LOST, **RESTARTS),
        planted(own_log_before_the_snapshot_is_not_needed, first=5, rates=LOST, **RESTARTS),
        planted(what_others_resume_with_is_done_anew, first=145, rates=LOST, **RESTARTS),
        planted(
            an_older_copy_of_the_checkpoint_is_resumed_from,
            first=1080,
            rates={**LOST, Fault.CHECKPOINT_OLDER: 0.8, Fault.DRIVER_LOSS: 0.03},
            **{**RESTARTS, "faults": 60, "epoch": 6},
        ),
        planted(replacement_forgets_where_the_attempt_resumed, first=814, rates=RATES, **RESTARTS),
        planted(
            what_an_overtaken_start_made_of_an_epoch_counts,
            first=9,
            rates={Fault.OFFSETS_LOST: 0.7, Fault.DRIVER_LOSS: 0.03},
            **{**OTHERS, "realtime": False, "skips_idle": True, "timers": False, "faults": 20},
        ),
    )
}
