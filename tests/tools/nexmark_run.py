"""Runs a NexMark query's operators without Spark: real operators over fake services, routed, bundled and interleaved.

Source partitions and upstream instances are channels, FIFO each. Which channel an instance hears next, and how much, is
drawn; its clock moves on by random steps. Watermarks follow the library's rule.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pyarrow as pa
from surface_services import FakeServices

from clonos.operators.process import MapOperator, ProcessOperator
from clonos.operators.rows import make_row
from clonos.protocol.destination import destination
from clonos.tools.nexmark.feed import partition_of
from clonos.tools.nexmark.query import Query, Run, Stage


class Instance:
    """One instance of a stage."""

    def __init__(self, stage: Stage, names: list[str], rng: Random) -> None:
        self._stage = stage
        self._names = names
        self._rng = rng
        self.services = FakeServices()
        self.operator: Any
        if stage.key:
            self.operator = ProcessOperator(stage.fn, stage.columns, name=stage.name, on_timer=stage.on_timer)
        else:
            self.operator = MapOperator(stage.fn, stage.columns, name=stage.name, pure=True)
        self.operator.open(self.services)

    def bundle(self, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        services = self.services
        services.time += self._rng.choice((0, 1_000, 200_000, 4_000_000))
        made = list(self.operator.timers(services.timers.pop_due(services.time), False))
        given = [make_row(self._names, [row[name] for name in self._names]) for row in rows]
        made += self.operator.bundle([tuple(row[name] for name in self._stage.key) for row in given], given)
        if self._stage.watermark is not None:
            reached = max(row["dateTime"] for row in rows) * 1000 - self._stage.watermark[1] * 1_000_000
            services.watermark = max(reached, services.watermark or reached)
            while due := services.event_timers.pop_due(services.watermark):
                made += self.operator.timers(due, True)
        return made


def inputs(query: Query, run: Run) -> list[deque[dict[str, Any]]]:
    """What each source partition brings, in order."""
    channels = []
    for given in query.inputs:
        found: list[deque[dict[str, Any]]] = [deque() for _ in range(run.partitions)]
        events = run.events(given.kind)
        ids = pa.array([event["event"] for event in events], pa.int64()).to_numpy()
        for event, partition in zip(events, partition_of(run.workload, ids, run.partitions)):
            row = given.row(event)
            if row is not None:
                found[partition].append(row)
        channels += found
    return channels


def run_query(query: Query, run: Run, seed: int = 0) -> list[dict[str, Any]]:
    """The rows that come out, in some legal order."""
    rng = Random(seed)
    channels = inputs(query, run)
    for stage in query.stages:
        channels = run_stage(stage, channels, run.parallelism, rng)
    return [row for channel in channels for row in channel]


def run_stage(
    stage: Stage, channels: list[deque[dict[str, Any]]], parallelism: int, rng: Random
) -> list[deque[dict[str, Any]]]:
    names = list(next(channel[0] for channel in channels if channel))
    made: list[deque[dict[str, Any]]] = []
    for number in range(parallelism):
        mine = [[row for row in channel if owner(stage, row, parallelism) == number] for channel in channels]
        left = [deque(channel) for channel in mine if channel]
        instance, out = Instance(stage, names, rng), deque[dict[str, Any]]()
        while left:
            channel = rng.choice(left)
            rows = [channel.popleft() for _ in range(min(len(channel), rng.choice((1, 3, 40))))]
            out.extend(dict(zip(stage.columns, row, strict=True)) for row in instance.bundle(rows))
            left = [channel for channel in left if channel]
        made.append(out)
    return made


def owner(stage: Stage, row: dict[str, Any], parallelism: int) -> int:
    key = tuple(row[name] for name in stage.key)
    return destination(key, parallelism) if key else row["event"] % parallelism
