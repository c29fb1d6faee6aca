"""Checkpoints of a round cut every channel where its sender did: by alignment, or with the states of channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from clonos.protocol.ingestion import Ingested
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.coordinated.alignment import Alignment
from clonos.protocol.recovery.coordinated.channel_states import ChannelStates
from clonos.protocol.recovery.marker import Marker, Round
from clonos.protocol.recovery.policy import (
    BeginCheckpoint,
    Checkpoint,
    CompleteCheckpoint,
    Decision,
    InstancePolicy,
    KeepInCheckpoint,
)

A, B, SOURCE = 1, 2, 9


def bundle(*records: Any, arrays: bool = False) -> Bundle:
    """Of (channel, position) and (channel, Round)."""
    rows = [each for each in records if not isinstance(each, Marker)]
    markers: list[Marker] = []
    behind = 0
    for each in records:
        if isinstance(each, Marker):
            markers.append(Marker(each.channel, each.round, behind))
        else:
            behind += 1
    channels = [channel for channel, _ in rows]
    positions = [position for _, position in rows]
    ingested = [Ingested(channel, 1, 100 * channel + position) for channel, position in rows]
    given = (np.array(channels), np.array(positions)) if arrays else (channels, positions)
    return Bundle(*given, [(f"{c}:{p}",) for c, p in rows], ingested=ingested, markers=markers)


def marker(channel: int, round: int = 1) -> Marker:
    return Marker(channel, Round(round), 0)


def said(decisions: Any) -> list[Any]:
    """Rows as they are taken, and the rounds of checkpoints."""
    found: list[Any] = []
    for each in decisions:
        if isinstance(each, Checkpoint):
            found.append(each.round)
        else:
            found += [row[0] for row in each.rows]
    return found


@pytest.mark.parametrize("arrays", [False, True])
def test_a_marked_channel_is_held_until_all_are_marked(arrays: bool) -> None:
    alignment = Alignment([A, B])
    first = bundle((A, 1), marker(A), (A, 2), (B, 1), (SOURCE, 1), arrays=arrays)
    assert said(alignment.arrive(first)) == ["1:1", "2:1", "9:1"]
    assert alignment.held == 1
    assert said(alignment.arrive(bundle((B, 2), marker(B), (B, 3), (A, 3), arrays=arrays))) == [
        "2:2",
        1,
        "1:2",
        "2:3",
        "1:3",
    ]
    assert alignment.held == 0


def test_a_bundle_without_markers_is_taken_as_it_is() -> None:
    whole = bundle((A, 1), (B, 1))
    assert list(Alignment([A, B]).arrive(whole)) == [whole]


def test_when_rows_entered_goes_with_them() -> None:
    alignment = Alignment([A, B])
    taken = list(alignment.arrive(bundle(marker(A), (A, 1), (B, 1), (A, 2), (B, 2))))
    assert [each.ingested for each in taken if isinstance(each, Bundle)] == [
        [Ingested(B, 1, 201), Ingested(B, 1, 202)]
    ]
    held = list(alignment.arrive(bundle(marker(B))))
    assert [each.ingested for each in held if isinstance(each, Bundle)] == [
        [Ingested(A, 1, 101), Ingested(A, 1, 102)]
    ]


def test_event_time_of_a_held_channel_is_held_with_its_rows() -> None:
    alignment = Alignment([A, B])
    early = Bundle([A], [1], [("1:1",)], watermarks={A: 5, B: 7}, markers=[Marker(A, Round(1), 0)])
    assert [each.watermarks for each in alignment.arrive(early) if isinstance(each, Bundle)] == [{B: 7}]
    later = [each for each in alignment.arrive(bundle(marker(B))) if isinstance(each, Bundle)]
    assert [(len(each.rows), dict(each.watermarks)) for each in later] == [(1, {}), (0, {A: 5})]


def test_an_instance_that_reads_sources_alone_begins_a_round_once() -> None:
    alignment = Alignment([])
    assert said(alignment.begin_round(Round(1))) == [1]
    assert said(alignment.begin_round(Round(1))) == []
    assert said(alignment.begin_round(Round(3))) == [3]
    assert said(alignment.begin_round(Round(0))) == []
    assert said(alignment.arrive(bundle((SOURCE, 1)))) == ["9:1"]
    assert said(Alignment([A]).begin_round(Round(1))) == [], "others wait for their markers"


def test_what_is_held_is_taken_when_the_epoch_ends() -> None:
    alignment = Alignment([A, B])
    assert said(alignment.arrive(bundle(marker(A), (A, 1)))) == []
    assert said(alignment.end_input()) == ["1:1"]
    alignment.begin_epoch()
    assert said(alignment.arrive(bundle((A, 2), marker(B, 2), (B, 1), marker(A, 2)))) == ["1:2", 2, "2:1"]


def test_a_later_round_makes_an_earlier_one_forgotten() -> None:
    alignment = Alignment([A, B])
    assert said(alignment.arrive(bundle(marker(A), (A, 1), marker(B, 2), (A, 2), (B, 1)))) == ["1:1", "1:2"]
    assert said(alignment.arrive(bundle(marker(B, 1), marker(A, 2)))) == [2, "2:1"]


def unaligned(decisions: Any) -> list[Any]:
    """Rows as they are taken; the rounds whose checkpoints are begun; as lists, rows that are kept for one; as
    mappings, how far the states of channels reach in one that is complete."""
    found: list[Any] = []
    for each in decisions:
        if isinstance(each, KeepInCheckpoint):
            found.append([row[0] for row in each.records.rows])
        elif isinstance(each, CompleteCheckpoint):
            found.append(dict(each.reached))
        elif isinstance(each, BeginCheckpoint | Checkpoint):
            found.append(each.round)
        else:
            found += [row[0] for row in each.rows]
    return found


@pytest.mark.parametrize("arrays", [False, True])
def test_nothing_is_held_and_what_comes_before_its_marker_is_in_the_checkpoint(arrays: bool) -> None:
    policy = ChannelStates([A, B])
    first = bundle((A, 1), marker(A), (A, 2), (B, 1), (SOURCE, 1), arrays=arrays)
    assert unaligned(policy.arrive(first)) == ["1:1", 1, ["2:1"], "1:2", "2:1", "9:1"]
    between = bundle((B, 2), (A, 3), (SOURCE, 2), arrays=arrays)
    assert unaligned(policy.arrive(between)) == [["2:2"], "2:2", "1:3", "9:2"], "kept before it is taken"
    last = bundle((B, 3), marker(B), (B, 4), (A, 4), arrays=arrays)
    assert unaligned(policy.arrive(last)) == [["2:3"], "2:3", {B: 3}, "2:4", "1:4"]
    assert unaligned(policy.arrive(bundle((A, 5), arrays=arrays))) == ["1:5"]


def test_an_unaligned_instance_that_reads_sources_alone_begins_a_round_once() -> None:
    policy = ChannelStates([])
    assert [unaligned(policy.begin_round(Round(number))) for number in (1, 1, 3, 0)] == [[1], [], [3], []]
    assert unaligned(ChannelStates([A]).begin_round(Round(1))) == [], "others wait for their markers"


def test_with_one_sender_a_checkpoint_is_complete_at_once() -> None:
    assert unaligned(ChannelStates([A]).arrive(bundle((A, 1), marker(A), (A, 2)))) == ["1:1", 1, {}, "1:2"]


def test_a_checkpoint_that_an_epoch_ends_in_is_never_complete() -> None:
    policy = ChannelStates([A, B])
    assert unaligned(policy.arrive(bundle(marker(A), (B, 1)))) == [1, ["2:1"], "2:1"]
    assert unaligned(policy.end_input()) == []
    policy.begin_epoch()
    assert unaligned(policy.arrive(bundle((B, 2), marker(B, 2), (A, 1), marker(A, 2)))) == [
        "2:2",
        2,
        ["1:1"],
        "1:1",
        {A: 1},
    ]


def test_a_later_round_takes_the_place_of_one_that_is_not_complete() -> None:
    policy = ChannelStates([A, B])
    assert unaligned(policy.arrive(bundle(marker(A), (B, 1), marker(B, 2), (A, 1)))) == [
        1,
        ["2:1"],
        "2:1",
        2,
        ["1:1"],
        "1:1",
    ]
    assert unaligned(policy.arrive(bundle(marker(B, 1), marker(A, 2)))) == [{A: 1}]


def test_event_time_is_heard_behind_the_rows() -> None:
    said = Bundle([A], [1], [("1:1",)], watermarks={A: 5, B: 7}, markers=[Marker(A, Round(1), 0)])
    taken = [each for each in ChannelStates([A, B]).arrive(said) if isinstance(each, Bundle)]
    assert [(len(each.rows), dict(each.watermarks)) for each in taken] == [(1, {}), (0, {A: 5, B: 7})]


@dataclass
class Node:
    """An instance that hands every record on to all that it feeds. A checkpoint: what it has received by channel, the
    records of channels' states among it, and what it had sent."""

    channel: int
    policy: InstancePolicy
    feeds: list[int]
    reached: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    checkpoints: dict[int, tuple[dict[int, int], int]] = field(default_factory=dict)


class Network:
    """Instances on FIFO channels that deliver in any order."""

    def __init__(self, upstream: list[list[int]], dice: Random, policy: Callable[[list[int]], Any]) -> None:
        self._dice = dice
        feeds: list[list[int]] = [[] for _ in upstream]
        for receiver, senders in enumerate(upstream):
            for sender in senders:
                feeds[sender].append(receiver)
        self.nodes = [Node(at, policy(senders), feeds[at]) for at, senders in enumerate(upstream)]
        self.wires: dict[tuple[int, int], deque[Any]] = {
            (sender, receiver): deque() for receiver, senders in enumerate(upstream) for sender in senders
        }

    def send(self, node: Node, what: Any) -> None:
        for receiver in node.feeds:
            self.wires[node.channel, receiver].append(what)

    def produce(self, node: Node) -> None:
        node.sent += 1
        self.send(node, node.sent)

    def carry_out(self, node: Node, decisions: Any) -> None:
        each: Decision
        for each in decisions:
            if isinstance(each, Checkpoint | BeginCheckpoint):
                assert each.round is not None
                node.checkpoints[each.round] = dict(node.reached), node.sent
                self.send(node, each.round)
                continue
            if isinstance(each, KeepInCheckpoint | CompleteCheckpoint):
                self.keep(node.checkpoints[max(node.checkpoints)][0], each)
                continue
            for channel, position in zip(each.channels, each.positions, strict=True):
                assert position == node.reached.get(channel, 0) + 1, "FIFO, and nothing is lost"
                node.reached[channel] = position
                self.produce(node)

    def keep(self, reached: dict[int, int], what: KeepInCheckpoint | CompleteCheckpoint) -> None:
        if isinstance(what, CompleteCheckpoint):
            assert what.reached.items() <= reached.items()
            return
        for channel, position in zip(what.records.channels, what.records.positions, strict=True):
            assert position == reached.get(channel, 0) + 1
            reached[channel] = position

    def deliver(self) -> bool:
        """Some of what waits for one receiver, from its channels in any order."""
        waiting = sorted({receiver for (_, receiver), wire in self.wires.items() if wire})
        if not waiting:
            return False
        receiver = self._dice.choice(waiting)
        given: list[Any] = []
        for _ in range(self._dice.randint(1, 6)):
            full = [sender for (sender, to), wire in sorted(self.wires.items()) if to == receiver and wire]
            if not full:
                break
            sender = self._dice.choice(full)
            what = self.wires[sender, receiver].popleft()
            given.append(marker(sender, what) if type(what) is not int else (sender, what))
        node = self.nodes[receiver]
        self.carry_out(node, node.policy.arrive(bundle(*given)))
        return True


class RoundNumber(int):
    """A round on a wire, told from a record."""


@pytest.mark.parametrize("policy", [Alignment, ChannelStates])
@given(seed=st.integers(0, 1 << 32), size=st.integers(2, 7), rounds=st.integers(1, 4))
def test_checkpoints_of_a_round_are_a_consistent_cut(
    policy: Callable[[list[int]], InstancePolicy], seed: int, size: int, rounds: int
) -> None:
    dice = Random(seed)
    upstream: list[list[int]] = [[] for _ in range(size)]
    for at in range(1, size):
        upstream[at] = sorted(dice.sample(range(at), dice.randint(0, min(at, 3))))
    network = Network(upstream, dice, policy)
    roots = [node for node in network.nodes if not upstream[node.channel]]
    for number in range(1, rounds + 1):
        late = [node for node in roots if dice.random() < 0.5]
        for node in roots:
            network.produce(node)
            if node not in late:
                network.carry_out(node, node.policy.begin_round(RoundNumber(number)))  # type: ignore[arg-type]
        for _ in range(dice.randint(0, 30)):
            network.deliver()
            network.produce(dice.choice(roots))
        for node in late:
            network.carry_out(node, node.policy.begin_round(RoundNumber(number)))  # type: ignore[arg-type]
        while network.deliver():
            pass
        for node in network.nodes:
            reached, _ = node.checkpoints[number]
            for sender in upstream[node.channel]:
                assert reached.get(sender, 0) == network.nodes[sender].checkpoints[number][1]
    assert all(node.policy.held == 0 for node in network.nodes if isinstance(node.policy, Alignment))
