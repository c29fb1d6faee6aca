"""Planted bugs about unaligned checkpoints and the states of channels in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from planted import CRASHES, RESTARTS, Planted
from planted_recovery import planted_under

from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.coordinated.channel_states import ChannelStates
from clonos.protocol.recovery.marker import Marker
from clonos.protocol.recovery.policy import BeginCheckpoint, Checkpoint, CompleteCheckpoint, Decision
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos.protocol.roles.operator_session import OperatorSession
from clonos.sim.operator_host import OperatorHost

Patch = pytest.MonkeyPatch


def channels_have_no_state(patch: Patch) -> None:
    patch.setattr(ChannelStates, "_keep", lambda self, bundle, span: iter(()))


def what_follows_a_marker_is_in_the_state_of_its_channel(patch: Patch) -> None:
    real = ChannelStates._keep

    def keep(self: ChannelStates, bundle: Any, span: Any) -> Iterator[Decision]:
        unmarked = self._unmarked
        self._unmarked = set(self._senders) if unmarked else set()
        kept = list(real(self, bundle, span))
        self._unmarked = unmarked
        yield from kept

    patch.setattr(ChannelStates, "_keep", keep)


def checkpoint_is_complete_with_its_first_marker(patch: Patch) -> None:
    def mark(self: ChannelStates, marker: Marker) -> Iterator[Decision]:
        if marker.round > self._round:
            self._round = marker.round
            yield BeginCheckpoint(marker.round)
            yield CompleteCheckpoint({})

    patch.setattr(ChannelStates, "_mark", mark)


def what_channels_had_in_a_round_before_is_in_their_state(patch: Patch) -> None:
    real = OperatorSession._fix_state

    def fix_state(self: OperatorSession[Any, Any, Any], round: Any = None, **how: Any) -> Any:
        begun = yield from real(self, round, **how)
        before = getattr(self, "before", [])
        self.before = begun.channel_state  # type: ignore[attr-defined]
        begun.channel_state.extend(before)
        return begun

    patch.setattr(OperatorSession, "_fix_state", fix_state)


def states_of_channels_are_what_functions_have_left_of_them(patch: Patch) -> None:
    """They are written when the checkpoint is complete."""
    kept: dict[bytes, Bundle] = {}
    real, complete = OperatorHost.kept_records, OperatorHost.with_content

    def kept_records(self: OperatorHost, records: Bundle) -> bytes:
        key = str(len(kept)).encode()
        kept[key] = records
        return key

    def with_content(self: OperatorHost, pending: Any, content: Any, *, covered: int) -> Any:
        written = [real(self, kept[key]) for key in content.channel_state]
        return complete(self, pending, replace(content, channel_state=written), covered=covered)

    patch.setattr(OperatorHost, "kept_records", kept_records)
    patch.setattr(OperatorHost, "with_content", with_content)


def state_is_fixed_when_the_last_marker_has_come(patch: Patch) -> None:
    """And has what came behind the first ones."""
    real = ChannelStates._mark

    def mark(self: ChannelStates, marker: Marker) -> Iterator[Decision]:
        for decision in real(self, marker):
            if isinstance(decision, CompleteCheckpoint):
                yield Checkpoint(self._round)

    channels_have_no_state(patch)
    patch.setattr(ChannelStates, "_mark", mark)


def marker_is_sent_when_the_checkpoint_is_complete(patch: Patch) -> None:
    """Rows that were sent since its state was fixed come before it."""
    real = OperatorSession._checkpoint

    def checkpoint(self: OperatorSession[Any, Any, Any], decision: Any) -> Any:
        if isinstance(decision, BeginCheckpoint):
            self._begun = yield from self._fix_state(decision.round)
            return
        if isinstance(decision, CompleteCheckpoint) and self._begun is not None:
            yield from self._ports.send(
                [self._ports.marker_frame(self._begun.covers.round, self.live.emitted_output)]
            )
        yield from real(self, decision)

    patch.setattr(OperatorSession, "_checkpoint", checkpoint)


def rounds_of_the_start_before_count(patch: Patch) -> None:
    """Those of this one are numbered like them."""
    real = Rounds.newest

    def newest(self: Rounds, other: Rounds) -> Rounds:
        return real(self, replace(other, generation=self.generation))

    patch.setattr(Rounds, "newest", newest)
    patch.setattr(Rounds, "in_start", lambda self, generation: self)


of = planted_under(RecoveryKind.UNALIGNED)

UNALIGNED: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        of(channels_have_no_state, rates={**CRASHES, **RESTARTS}),
        of(what_follows_a_marker_is_in_the_state_of_its_channel, rates={**CRASHES, **RESTARTS}),
        of(checkpoint_is_complete_with_its_first_marker, rates={**CRASHES, **RESTARTS}),
        of(states_of_channels_are_what_functions_have_left_of_them, rates={**CRASHES, **RESTARTS}),
        of(rounds_of_the_start_before_count, first=60, rates={**CRASHES, **RESTARTS}),
        of(what_channels_had_in_a_round_before_is_in_their_state, rates={**CRASHES, **RESTARTS}),
        of(state_is_fixed_when_the_last_marker_has_come, rates={**CRASHES, **RESTARTS}),
        of(marker_is_sent_when_the_checkpoint_is_complete, rates={**CRASHES, **RESTARTS}),
    )
}
