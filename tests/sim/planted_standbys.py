"""Bugs of standbys, planted on purpose (`planted` has the catalogue)."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.protocol.engine.instance import Instance
from clonos.protocol.engine.replay import Replay
from clonos.protocol.recovery.causal import retrieval
from clonos.protocol.recovery.causal.own_log import OwnLog
from clonos.protocol.recovery.causal.retrieval import Recovered
from clonos.protocol.roles import incarnation
from clonos.protocol.roles.conduit_model import Conduit, FlushLog
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.sim.replica import Replica

Patch = pytest.MonkeyPatch
Session = OperatorSession[Any, Any, Any]


def standby_runs_ahead(patch: Patch) -> None:
    """It repeats all that it has of the log, also what the conduit has not been told: no instance gets those rows."""
    real = Replay.advance

    def advance(self: Replay) -> None:
        if self.following:
            self.followed = self._log.recording.end
        real(self)

    patch.setattr(Replay, "advance", advance)


def standby_runs_steps_that_are_not_complete(patch: Patch) -> None:
    """It does not wait for the log, and asks the clock and the services itself."""
    real = Replay.advance

    def advance(self: Replay) -> None:
        following, self._output.suppresses_all = self.following, False
        try:
            real(self)
        finally:
            self._output.suppresses_all = following

    patch.setattr(Replay, "advance", advance)


def promoted_standby_hands_on_what_was_handed_on(patch: Patch) -> None:
    real = Instance.go_live
    patch.setattr(Instance, "go_live", lambda self, emitted_output: real(self, 0))


def promoted_passive_standby_is_not_sent_what_came_since(patch: Patch) -> None:
    whatever_a_snapshot_depends_on(patch)
    real = Conduit._promote

    def promote(self: Conduit) -> None:
        self._standby.link.begin_after(self._last)
        real(self)

    patch.setattr(Conduit, "_promote", promote)


def promoted_standby_takes_over_what_is_checkpointed(patch: Patch) -> None:
    """Although it is behind: its snapshots replace those that reach further, and what they need is forgotten."""
    real = Conduit._promote

    def promote(self: Conduit) -> None:
        checkpointed = self._checkpointed
        real(self)
        self._checkpointed = checkpointed

    patch.setattr(Conduit, "_promote", promote)


def passive_standby_is_at_a_snapshot_that_its_primary_is_past(patch: Patch) -> None:
    """It is not told of newer ones, but what only they make unnecessary is forgotten."""
    whatever_a_snapshot_depends_on(patch)

    def advance_standby(self: Conduit) -> None:
        if self.limits.passive and self._standby.link.connected:
            self._standby.link.begin_after(self._checkpointed)

    patch.setattr(Conduit, "_advance_standby", advance_standby)


def whatever_a_snapshot_depends_on(patch: Patch) -> None:
    """A second line of defence, which is not asked whether the first one holds."""
    patch.setattr(incarnation, "missing_logs", lambda sent, truncation_points, held: [])
    patch.setattr(incarnation, "check_resumable", lambda *given, **named: None)
    patch.setattr(incarnation, "check_dependencies", lambda *given, **named: None)


def log_of_what_never_happened_is_believed(patch: Patch) -> None:
    whatever_a_snapshot_depends_on(patch)
    patch.setattr(OwnLog, "before", lambda self, newer: self)
    patch.setattr(OwnLog, "of_history", lambda self, mark: self)  # which a snapshot would tell, too


def instance_that_moved_asks_no_holder(patch: Patch) -> None:
    whatever_a_snapshot_depends_on(patch)
    patch.setattr(retrieval, "of_same_attempt", lambda fence, other: True)
    real = Conduit._record_failover

    def record_failover(self: Conduit, server: int) -> None:
        self._home = server
        real(self, server)

    patch.setattr(Conduit, "_record_failover", record_failover)


def what_was_received_elsewhere_is_not_held(patch: Patch) -> None:
    real = Instance.restore
    patch.setattr(
        Instance, "restore", lambda self, snapshot, **given: real(self, snapshot, **{**given, "received": ()})
    )


def log_before_the_snapshot_is_not_held_elsewhere(patch: Patch) -> None:
    real = Recovered.missing
    patch.setattr(Recovered, "missing", lambda self, own: (real(self, own)[0], []))


def snapshot_is_ahead_of_what_the_standby_was_shown(patch: Patch) -> None:
    """What has been recorded and not handed on is not flushed before a snapshot inside an epoch."""
    real = OperatorSession._snapshot_if_due

    def snapshot(self: Session) -> Any:
        flush, self.live.flush = self.live.flush, list  # type: ignore[method-assign]
        try:
            yield from real(self)
        finally:
            self.live.flush = flush  # type: ignore[method-assign]

    patch.setattr(OperatorSession, "_snapshot_if_due", snapshot)


def log_is_not_shown_to_the_standby(patch: Patch) -> None:
    """It goes live where it is, and draws other outcomes than those on which others depend."""
    patch.setattr(Instance, "follow", lambda self, start, log: [])


def increments_are_shown_from_the_wrong_offset(patch: Patch) -> None:
    real = Instance.follow
    patch.setattr(Instance, "follow", lambda self, start, log: real(self, start + 1, log))


def effects_do_not_wait_for_the_conduit(patch: Patch) -> None:
    """It is sent what they depend on, and may never read it."""
    patch.setattr(Replica, "flush_log", lambda self, start, log: self.send(FlushLog(start, log)))


def overtaken_replica_acts(patch: Patch) -> None:
    """It does not look whether another one has claimed the instance; its conduit does not know that it is given up."""

    def flush_log(self: Session, due: Any, start: int, log: bytes) -> None:
        ports = self._ports
        ports.send_ahead([self._frame(emit) for emit in due])
        ports.show_log(start, log)

    patch.setattr(OperatorSession, "flush_log", flush_log)
