"""The one solver of lines: against every other way to the line there is, on random executions."""

from __future__ import annotations

import random

import pytest
from line_oracles import executed, is_consistent, newest_of_all, receivers_first, rollback_propagation

from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.line.consistent_line import RestartPoint, newest_consistent_line
from clonos.protocol.line.recovery_line import Point, Standing, recovery_line
from clonos.protocol.topology import Node, NodeKind, Topology

SEEDS = range(400)
RECOVERIES = {
    "causal": (False, True),
    "uncoordinated": (True, False),
    "no log": (False, False),
    "causal, sources": (True, True),
}


@pytest.mark.parametrize(("lossless", "repeatable"), RECOVERIES.values(), ids=RECOVERIES)
def test_the_line_is_the_newest_of_all_that_are_consistent(lossless: bool, repeatable: bool) -> None:
    went_back = 0
    for seed in SEEDS:
        points = executed(seed, lossless=lossless, repeatable=repeatable)
        line = newest_consistent_line(points)
        assert is_consistent(points, line), seed
        assert line == newest_of_all(points), seed
        went_back += any(at < len(points[process]) - 1 for process, at in line.items())
    assert (went_back > len(SEEDS) / 10) is not (lossless and repeatable), went_back


def test_orphans_alone_are_rollback_propagation() -> None:
    for seed in range(2_000):
        points = executed(seed, lossless=True, repeatable=False)
        assert newest_consistent_line(points) == rollback_propagation(points), seed


def test_more_checkpoints_never_put_the_line_back() -> None:
    """As in Falkirk Wheel: a checkpoint more is a choice more."""
    for seed in SEEDS:
        points = executed(seed, lossless=False, repeatable=False)
        draw = random.Random(seed)
        fewer = {
            process: [
                candidates[0], *(one for one in candidates[1:] if draw.random() < 0.6)
            ]
            for process, candidates in points.items()
        }  # fmt: skip
        line, before = newest_consistent_line(points), newest_consistent_line(fewer)
        for process, at in before.items():
            assert points[process].index(fewer[process][at]) <= line[process], seed


def test_the_order_in_which_processes_are_looked_at_changes_nothing() -> None:
    for seed in SEEDS:
        points = executed(seed, lossless=False, repeatable=False)
        shuffled = random.Random(seed).sample(sorted(points), len(points))
        assert newest_consistent_line(points) == newest_consistent_line(
            {each: points[each] for each in shuffled}
        )


def test_what_a_process_sent_that_is_not_there_is_lost() -> None:
    begun = RestartPoint()
    assert newest_consistent_line({1: [begun, RestartPoint(unkept={2: 0})]}) == {1: 0}
    assert newest_consistent_line({1: [begun, RestartPoint(unrepeatable={2: 0})]}) == {1: 0}
    assert newest_consistent_line({1: [begun, RestartPoint(sent={2: 0})]}) == {1: 1}


def test_the_domino_effect() -> None:
    """Of two processes that answer each other each checkpoint has received what the other one sent behind its own."""
    begun, rounds = RestartPoint(), range(1, 9)

    def at(other: int, received: int, sent: int) -> RestartPoint:
        return RestartPoint({other: received}, {other: sent}, unrepeatable={other: received})

    one, two = [begun, *(at(2, n, n) for n in rounds)], [begun, *(at(1, n + 1, n) for n in rounds)]
    assert newest_consistent_line({1: one, 2: two}) == {1: 0, 2: 0}
    assert newest_consistent_line({1: [*one, at(2, 8, 9)], 2: two}) == {1: 9, 2: 8}


def drawn(seed: int) -> tuple[Topology, dict[Origin, Standing], dict[Origin, dict[int, int]]]:
    """A graph without loops, and snapshots of its instances that grow, as random as they come."""
    draw = random.Random(seed)
    nodes = [Node(1, NodeKind.SOURCE, "in", 0)]
    for number in range(2, draw.randint(3, 6)):
        upstream = draw.sample(range(1, number), draw.randint(1, min(2, number - 1)))
        nodes.append(
            Node(number, NodeKind.OPERATOR, f"op{number}", draw.randint(1, 2), tuple(sorted(upstream)))
        )
    last = len(nodes) + 1
    nodes.append(
        Node(last, NodeKind.SINK, "out", 1, tuple(draw.sample(range(2, last), draw.randint(1, last - 2))))
    )
    topology = Topology(tuple(nodes))
    receivers = [node for node in nodes if node.kind is not NodeKind.SOURCE]
    senders = {
        node.number: [
            Origin.of(each, one)
            for each in node.upstream
            for one in range(max(1, nodes[each - 1].parallelism))
        ]
        for node in receivers
    }

    def grown(before: dict[int, int], names: list[int]) -> dict[int, int]:
        return {name: before.get(name, 0) + draw.randint(0, 6) for name in names}

    standings: dict[Origin, Standing] = {}
    for node in receivers:
        channels = [sender.channel for sender in senders[node.number]]
        if node.kind is NodeKind.SINK:
            continue
        targets = list(range(sum(reader.parallelism for reader in topology.downstream(node.number))))
        for instance in range(node.parallelism):
            sent: dict[int, int] = {}
            reached: dict[int, int] = {}
            points = []
            for number in range(draw.randint(1, 5)):
                sent, reached = grown(sent, targets), grown(reached, channels)
                points.append(Point(f"{node.number}/{instance}/{number}", number, sent, reached))
            standings[Origin.of(node.number, instance)] = Standing(points[0], points[1:])
    cursors = (
        {Origin.of(last, 0): grown({}, [sender.channel for sender in senders[last]])}
        if draw.random() < 0.9
        else {}
    )
    return topology, standings, cursors


def test_the_line_of_causal_logging_is_what_one_pass_upstream_finds() -> None:
    resumed = 0
    for seed in range(2_000):
        topology, standings, cursors = drawn(seed)
        line = recovery_line(topology, standings, cursors, generation=Generation(2), epoch=Epoch(1))
        found = {origin: resume.name for origin, resume in line.resumes.items()}
        assert found == receivers_first(topology, standings, cursors), seed
        resumed += len(found)
    assert resumed > 1_000
