"""Planted bugs about queries in which some operators store before they send, beside others that take checkpoints in
rounds, or ones that rows force."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, RESTARTS, Planted
from planted_recovery import planted_in

from clonos.protocol.fence import Generation
from clonos.protocol.ids import OutputNumber, output_after
from clonos.protocol.recovery.communication_induced.forced_checkpoints import ForcedCheckpoints
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.uncoordinated.sent_log_truncation import SentLogTruncation
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.protocol.topology import NodeKind, Topology
from clonos.sim.plan import Fault
from clonos.sim.rollback_plan import mixed_with_induced, mixed_with_rounds

Patch = pytest.MonkeyPatch
Session = OperatorSession[Any, Any, Any]


def kept_checkpoints_of_one_that_stores_first_do_not_count(patch: Patch) -> None:
    real = ForcedCheckpoints.take_checkpoint

    def take_checkpoint(self: ForcedCheckpoints, *, counts: bool) -> bytes:
        return real(self, counts=counts and not self.kind.sends_late)

    patch.setattr(ForcedCheckpoints, "take_checkpoint", take_checkpoint)


def vectors_begin_anew_where_a_process_is_replaced(patch: Patch) -> None:
    real = ForcedCheckpoints.resume

    def resume(self: ForcedCheckpoints, kept: bytes, generation: Generation) -> None:
        if not self.kind.sends_late:
            real(self, kept, generation)

    patch.setattr(ForcedCheckpoints, "resume", resume)


def marker_overtakes_what_waits_to_be_stored(patch: Patch) -> None:
    def send_marker(self: Session, round: Any) -> None:
        self._ports.send_ahead([self._ports.marker_frame(round, self.live.emitted_output)])

    patch.setattr(OperatorSession, "_send_marker_when_stored", send_marker)


def marker_is_sent_again_behind_all_rows(patch: Patch) -> None:
    def with_last_marker(self: Session, frames: Any) -> Any:
        marker = self._policy.last_marker
        found = list(frames)
        if marker is not None and self.request.emitted_output <= marker.behind:
            found.append(
                (self.live.emitted_output, self._ports.marker_frame(marker.round, self.live.emitted_output))
            )
        return found

    patch.setattr(OperatorSession, "_with_last_marker", with_last_marker)


def checkpoint_of_a_round_is_not_kept_where_others_follow(patch: Patch) -> None:
    real = OperatorSession._is_mark_due

    def is_mark_due(self: Session, round: Any, *, is_forced: bool) -> bool:
        return round is None and real(self, round, is_forced=is_forced)

    patch.setattr(OperatorSession, "_is_mark_due", is_mark_due)


def what_has_been_sent_is_forgotten_when_a_round_is_complete(patch: Patch) -> None:
    """Whether its readers have had it in that round or not."""

    def pass_safe_line(self: SentLogTruncation, unread: OutputNumber) -> OutputNumber | None:
        if not self._places:
            return None
        place, self._places = self._places[-1], []
        return output_after(place.emitted, 1)

    patch.setattr(SentLogTruncation, "pass_safe_line", pass_safe_line)


def sink_of_rounds_shows_at_once_beside_one_that_does(patch: Patch) -> None:
    real = Recoveries.of.__func__  # type: ignore[attr-defined]

    def of(cls: Any, topology: Topology, default: RecoveryKind, own: Any = None) -> Recoveries:
        made: Recoveries = real(cls, topology, default, own)
        sinks = {node.number for node in topology.nodes if node.kind is NodeKind.SINK}
        shown = dict.fromkeys(sinks, RecoveryKind.EAGER)
        return replace(made, by_node={**made.by_node, **shown}, in_rounds=made.in_rounds - sinks)

    patch.setattr(Recoveries, "of", classmethod(of))


def bundles_from_a_marker_on_are_taken_for_a_part_of_what_is_stored(patch: Patch) -> None:
    """Although records of theirs are held."""
    patch.setattr(Alignment, "is_aligning", False)


def those_that_store_first_hold_nothing_behind_a_marker(patch: Patch) -> None:
    real = Alignment._records

    def records(self: Alignment, bundle: Any, span: Any) -> Any:
        if not self.kind.sends_late:
            yield from real(self, bundle, span)
            return
        marked, self._marked = self._marked, set()
        yield from real(self, bundle, span)
        self._marked = marked

    patch.setattr(Alignment, "_records", records)


LATE = {Fault.REPLICA_CRASH: 0.02, Fault.QUERY_RESTART: 0.01}

induced, rounds = planted_in(mixed_with_induced), planted_in(mixed_with_rounds)

ROUNDS: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        induced(kept_checkpoints_of_one_that_stores_first_do_not_count),
        induced(vectors_begin_anew_where_a_process_is_replaced),
        rounds(marker_overtakes_what_waits_to_be_stored),
        rounds(marker_is_sent_again_behind_all_rows, first=1078, rates=LATE),
        rounds(checkpoint_of_a_round_is_not_kept_where_others_follow, rates={**CRASHES, **RESTARTS}),
        rounds(what_has_been_sent_is_forgotten_when_a_round_is_complete, rates={**CRASHES, **RESTARTS}),
        rounds(sink_of_rounds_shows_at_once_beside_one_that_does),
        rounds(bundles_from_a_marker_on_are_taken_for_a_part_of_what_is_stored),
        rounds(those_that_store_first_hold_nothing_behind_a_marker),
    )
}
