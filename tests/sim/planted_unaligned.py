"""Planted bugs about unaligned checkpoints and the states of channels in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from planted import CRASHES, RESTARTS, Planted
from planted_recovery import planted_under

from clonos.protocol.recovery.coordinated.channel_states import ChannelStates
from clonos.protocol.recovery.marker import Marker
from clonos.protocol.recovery.policy import BeginCheckpoint, Checkpoint, CompleteCheckpoint, Decision
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.roles.operator_session import OperatorSession

Patch = pytest.MonkeyPatch


def channels_have_no_state(patch: Patch) -> None:
    patch.setattr(ChannelStates, "_keep", lambda self, bundle, span: None)


def what_follows_a_marker_is_in_the_state_of_its_channel(patch: Patch) -> None:
    real = ChannelStates._keep

    def keep(self: ChannelStates, bundle: Any, span: Any) -> None:
        unmarked = self._unmarked
        self._unmarked = set(self._senders) if unmarked else set()
        real(self, bundle, span)
        self._unmarked = unmarked

    patch.setattr(ChannelStates, "_keep", keep)


def checkpoint_is_complete_with_its_first_marker(patch: Patch) -> None:
    def mark(self: ChannelStates, marker: Marker) -> Iterator[Decision]:
        if marker.round > self._round:
            self._round = marker.round
            yield BeginCheckpoint(marker.round)
            yield CompleteCheckpoint([])

    patch.setattr(ChannelStates, "_mark", mark)


def what_channels_had_in_a_round_before_is_in_their_state(patch: Patch) -> None:
    real = ChannelStates._mark

    def mark(self: ChannelStates, marker: Marker) -> Iterator[Decision]:
        before = list(self.all_kept) if hasattr(self, "all_kept") else []
        for decision in real(self, marker):
            if isinstance(decision, CompleteCheckpoint):
                self.all_kept = decision.records  # type: ignore[attr-defined]
                yield CompleteCheckpoint([*before, *decision.records])
            else:
                yield decision

    patch.setattr(ChannelStates, "_mark", mark)


def state_is_fixed_when_the_last_marker_has_come(patch: Patch) -> None:
    """And has what came behind the first ones."""
    real = ChannelStates._mark

    def mark(self: ChannelStates, marker: Marker) -> Iterator[Decision]:
        for decision in real(self, marker):
            if isinstance(decision, CompleteCheckpoint):
                yield Checkpoint(self._round)

    patch.setattr(ChannelStates, "_mark", mark)


def marker_is_sent_when_the_checkpoint_is_complete(patch: Patch) -> None:
    """Rows that were sent since its state was fixed come before it."""
    real = OperatorSession._checkpoint

    def checkpoint(self: OperatorSession[Any, Any, Any], decision: Any) -> Any:
        if isinstance(decision, BeginCheckpoint):
            self._begun = yield from self._fix_state(decision.round)
            return
        if isinstance(decision, CompleteCheckpoint) and self._begun is not None:
            yield from self._ports.send_marker(self._begun.covers.round)
        yield from real(self, decision)

    patch.setattr(OperatorSession, "_checkpoint", checkpoint)


of = planted_under(RecoveryKind.UNALIGNED)

UNALIGNED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(channels_have_no_state, rates={**CRASHES, **RESTARTS}),
        of(what_follows_a_marker_is_in_the_state_of_its_channel, rates={**CRASHES, **RESTARTS}),
        of(checkpoint_is_complete_with_its_first_marker, rates={**CRASHES, **RESTARTS}),
        of(what_channels_had_in_a_round_before_is_in_their_state, rates={**CRASHES, **RESTARTS}),
        of(state_is_fixed_when_the_last_marker_has_come, rates={**CRASHES, **RESTARTS}),
        of(marker_is_sent_when_the_checkpoint_is_complete, rates={**CRASHES, **RESTARTS}),
    )
}
