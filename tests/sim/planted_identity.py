"""Planted bugs about what a source's records are known by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from planted import OTHERS, Planted, planted

from clonos.protocol.channel_numbering import Numbering
from clonos.protocol.engine import input_gate
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.frontier import Arrivals
from clonos.protocol.roles.incarnation import Incarnation
from clonos.protocol.source_channels import ChannelNumbers, Numbered
from clonos.sim.channel_pages import Channels
from clonos.sim.plan import Fault

Patch = pytest.MonkeyPatch


def used_identity_counts_as_repetition(patch: Patch) -> None:
    patch.setattr(input_gate, "Arrivals", lambda where, began=None, before=None: Arrivals(where))


def _forgetting(patch: Patch, **fields: Any) -> None:
    """Snapshots inside the epoch that is run."""
    real = Incarnation._return_to

    def return_to(self: Incarnation[Any], found: Any, resume: Any) -> InstanceSnapshot | None:
        snapshot = real(self, found, resume)
        inside = snapshot is not None and snapshot.epoch == self.request.epoch
        return replace(snapshot, **fields) if inside else snapshot

    patch.setattr(Incarnation, "_return_to", return_to)


def snapshot_forgets_with_what_its_epoch_began(patch: Patch) -> None:
    _forgetting(patch, began={})


def snapshot_forgets_what_came_before_it(patch: Patch) -> None:
    _forgetting(patch, arrived={})


def channel_is_the_bare_partition(patch: Patch) -> None:
    """As long as names do not differ in anything else, this does no harm."""

    def number(self: ChannelNumbers, node: int, name: str) -> int:
        return int(name.rpartition("/")[2])

    patch.setattr(ChannelNumbers, "number", number)


def number_is_given_before_it_is_durable(patch: Patch) -> None:
    def give(self: Channels, asked: Iterable[tuple[int, str]]) -> Any:
        new = self.numbers.assign(asked)
        self.numbers.add(new)
        later = self._driver.kernel.after
        later(30_000, self._driver.call, lambda: list(self._numbering._keep(new)))
        return iter(())

    patch.setattr(Channels, "give", give)


def numbers_that_an_older_copy_lacks_are_given_again(patch: Patch) -> None:
    """And the sink knows rows by what they meant before."""
    real = Numbering.begin
    patch.setattr(Numbering, "begin", lambda self, start, known=(), heard_of=0: real(self, start, known))


def number_is_given_twice(patch: Patch) -> None:
    """Of names that are asked for at the same time."""
    real = ChannelNumbers.assign

    def assign(self: ChannelNumbers, asked: Iterable[tuple[int, str]]) -> list[Numbered]:
        return [one for pair in asked for one in real(self, [pair])]

    patch.setattr(ChannelNumbers, "assign", assign)
    patch.setattr(ChannelNumbers, "add", _add_unchecked)


def _add_unchecked(self: ChannelNumbers, entries: Iterable[Numbered]) -> None:
    for node, number, name in entries:
        self._numbers[node, name] = number
        self._next[node] = max(self._next.get(node, 0), number + 1)


RECREATED = {**OTHERS, "topics": 2, "recreated": True, "impure": False, "poison": 0}
NAMED = {**OTHERS, "topics": 2, "recreated": False, "impure": False}
SNAPPED = {
    **RECREATED,
    "faults": 60,
    "snapshot_rate": 0.9,
    "bundle": 1,
    "records": 60,
    "epoch": 12,
    "realtime": True,
}
CRASHES = {Fault.REPLICA_CRASH: 0.01}

IDENTITY: dict[str, Planted] = {
    bug.plant.__name__: bug
    for bug in (
        planted(used_identity_counts_as_repetition, first=2, **RECREATED),
        planted(snapshot_forgets_with_what_its_epoch_began, first=487, rates=CRASHES, **SNAPPED),
        planted(snapshot_forgets_what_came_before_it, first=38, rates=CRASHES, **SNAPPED),
        planted(channel_is_the_bare_partition, **NAMED),
        planted(
            number_is_given_before_it_is_durable,
            rates={Fault.DRIVER_LOSS: 0.02},
            **{**NAMED, "late_partitions": True},
        ),
        planted(number_is_given_twice, **NAMED),
        planted(
            numbers_that_an_older_copy_lacks_are_given_again,
            first=485,
            rates={Fault.CHECKPOINT_OLDER: 0.5, Fault.DRIVER_LOSS: 0.02},
            **{**NAMED, "late_partitions": True, "realtime": True, "faults": 30},
        ),
    )
}
