"""Replica processes that lack one part of the protocol: entries for the replica server, `sabotage:<name>`.

Each takes away the recording or the replay of one kind of determinant, or one of the deduplications, and then runs the
replica as it is. `blind_*` also takes the divergence detection away, so that only the oracle can notice.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from clonos.protocol.engine.epoch_boundary import EpochBoundary
from clonos.protocol.engine.instance import Bundle, Instance
from clonos.protocol.engine.output_commit import SinkInstance, Write
from clonos.protocol.engine.step_executor import StepExecutor
from clonos.protocol.engine.waiting import Waiting
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.replayer import StepReplayer
from clonos.sinks import sql_writer
from clonos_standby.replica import process as replica


def forget_clocks() -> None:
    codec.append_clock = lambda entries, at: None


def forget_instants() -> None:
    codec.append_instants = lambda entries, at: None


def forget_calls() -> None:
    codec.append_call = lambda entries, outcome: None


def forget_seeds() -> None:
    begin = EpochBoundary.begin

    def begin_anyhow(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self._services.random.seed(int.from_bytes(os.urandom(8)))

    EpochBoundary.begin = begin_anyhow


def forget_order() -> None:
    """A step takes as many records as it had, from whatever channel there are some, and last from its own."""
    repeat = StepExecutor.repeat

    def have(self: Any, runs: Any) -> bool:
        return sum(map(len, self._by_channel.values())) >= sum(count for _, count in runs)

    def repeat_anyhow(self: Any, step: Any) -> Any:
        if step.kind is Kind.ORDER:
            left = sum(count for _, count in step.runs)
            had = [channel for channel, _ in step.runs]
            waiting = self._gate.waiting._by_channel
            others = [channel for channel in waiting if channel not in had]
            step.runs = []
            for channel in [*others, *dict.fromkeys(reversed(had))]:
                count = min(left, len(waiting.get(channel, ())))
                left -= count
                if count:
                    step.runs.append((channel, count))
        return repeat(self, step)

    Waiting.have = have  # type: ignore[method-assign]
    StepExecutor.repeat = repeat_anyhow


def forget_cursor() -> None:
    """The sink makes visible whatever comes."""

    def take(self: Any, bundle: Bundle) -> Write:
        ids = [f"1-0-{int.from_bytes(os.urandom(6))}" for _ in bundle.rows]
        return Write(list(bundle.rows), ids, {}, [])

    SinkInstance.take = take
    sql_writer.check_bundle = lambda *bundle: None


def forget_emitted_output() -> None:
    """The operator hands on again what it had handed on."""
    open_epoch = Instance.open_epoch

    def open_anyhow(self: Any, epoch: int, *, emitted_output: int = 0, **given: Any) -> Any:
        return open_epoch(self, epoch, emitted_output=0, **given)

    Instance.open_epoch = open_anyhow


def blind() -> None:
    """A replay that differs is taken for what was recorded."""

    def close(self: Any, outputs: int, digest: int) -> bytes:
        step = self._step
        recorded: bytes = self._ports._log.recording.between(step.start, step.stop)
        return recorded

    StepReplayer._beyond = lambda self, kind, asked: None
    StepReplayer._diverged = lambda self, what: None
    StepReplayer.close = close


def _entry(*parts: Callable[[], None]) -> Callable[[socket.socket, str], None]:
    def run(control: socket.socket, spec_path: str) -> None:
        for part in parts:
            part()
        replica.main(control, spec_path)

    return run


KINDS = {
    "clocks": forget_clocks,
    "instants": forget_instants,
    "calls": forget_calls,
    "seeds": forget_seeds,
    "order": forget_order,
}
for _name, _part in KINDS.items():
    globals()[f"no_{_name}"] = _entry(_part)
    globals()[f"blind_no_{_name}"] = _entry(_part, blind)
no_cursor = _entry(forget_cursor)
no_emitted_output = _entry(forget_emitted_output)
only_blind = _entry(blind)
