"""Dead letter replay: one record, the state of its key and what was recorded of its step, and the user's function.

A program of its own (see `replaying`): `python -m clonos.tools.log.dead_letter_replay LETTER MODULE:FUNCTION FD`.
What the function asks for is answered from the recording as long as it lasts, then by the live service. The result
goes to the descriptor as JSON; where nothing comes, the function has taken the process with it.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from clonos.archive.record_at_hand import StateInMemory, operator_of
from clonos.errors import ConfigurationError, DivergenceError, Where
from clonos.operators.intercept.install import install
from clonos.operators.intercept.operator import InterceptedOperator
from clonos.operators.named_object import named_object
from clonos.operators.rows import RowDecoder
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.ids import LOG_BEGIN, Origin
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.protocol.recovery.causal.recorder import Perform
from clonos.protocol.recovery.causal.replayer import StepReplayer
from clonos.protocol.side_output import MAIN, OutputName, output_of
from clonos.storage import dead_letters
from clonos.storage.dead_letters import DeadLetter
from clonos.values.grouping_keys import key_of
from clonos.values.readable import key_said, moment
from clonos_standby.replica.batches import OutputWriter
from clonos_standby.replica.outcomes import Outcomes


class ReplayTimers:
    """Timers that are noted and never fire."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def set(self, due: int, key: bytes, name: str = "") -> None:
        self.noted.append(f"set {name!r} for {moment(due)}")

    def cancel(self, due: int, key: bytes, name: str = "") -> None:
        self.noted.append(f"cancelled {name!r} for {moment(due)}")

    def next_due(self) -> int | None:
        return None


class _Nothing:
    """What a step needs of a runtime: here, a clock."""

    def clock(self) -> int:
        return time.time_ns() // 1000

    def stabilise(self, chunk: bytes) -> None:
        """The letter is stable."""

    def rebuilt(self, chunk: bytes) -> None:
        """Nothing is written."""


class ReplayStep(StepReplayer):
    """A recorded step that tells where the recording ended."""

    def __init__(self, step: Step, where: Where, recorded_only: bool) -> None:
        super().__init__(_Nothing(), step, where)
        self.live: list[str] = []
        self._recorded_only = recorded_only

    def _beyond(self, kind: Kind, asked: str) -> None:
        if self._recorded_only:
            self._diverged(f"asked for was {asked}, and nothing further is recorded")
        self.live.append(asked)

    def _outcome_of_effect(self, key: str, perform: Perform) -> Any:
        effects = self._step.effects
        if effects and effects[0].outcome is None:
            self._beyond(Kind.EFFECT, f"the effect under the key {key!r}, announced, its outcome lost")
        return super()._outcome_of_effect(key, perform)

    def unused(self) -> str | None:
        """What was recorded for the record and not asked for."""
        step = self._step
        left = [f"a call of {call.name}" for call in step.calls]
        left += [f"an answer to a call of {answer.outcome.name}" for answer in step.answers]
        left += [f"an effect under the key {effect.key!r}" for effect in step.effects]
        left += ["an exact clock reading"] * len(step.instants)
        return ", ".join(left) or None


def replay_letter(
    letter: DeadLetter, fn: Callable[..., Any], *, recorded_only: bool = False
) -> dict[str, Any]:
    """What the function makes of the record."""
    where = Where(letter.operator, letter.instance, letter.epoch, letter.channel, letter.position)
    state, timers = StateInMemory(copy.deepcopy(letter.state)), ReplayTimers()
    stream = random.Random()
    stream.setstate(letter.random)
    services = CausalServices(
        state=state, timers=timers, event_timers=timers, random=stream, outcomes=Outcomes()
    )
    services.watermark = letter.watermark
    services.where = lambda row: where
    (recorded,) = decode_steps(letter.recorded, LOG_BEGIN) or [Step(Kind.ORDER, LOG_BEGIN)]
    step = services.step = ReplayStep(recorded, where, recorded_only)
    operator = operator_of(letter, fn)
    if letter.intercept:
        operator = InterceptedOperator(operator)
    schemas = {MAIN: letter.output_schema(), **letter.side_schemas()}
    writer = OutputWriter(schemas, letter.zone, letter.operator, Origin.of(letter.node, letter.instance))
    table = letter.table()
    rows = RowDecoder(table.schema, letter.zone)
    (batch,) = table.to_batches()
    said: dict[str, Any] = {"live": step.live, "timers": timers.noted}
    try:
        operator.open(services)
        made = operator.bundle([key_of(letter.key)], rows.rows(rows.columns(batch), 1))
        writer.encode(made)
    except DivergenceError as error:
        return {**said, "ended": "diverges", "why": error.message}
    except Exception as error:
        why = "".join(traceback.format_exception(error.__cause__ or error))
        return {**said, "ended": "raises", "why": why}
    said["outputs"] = [_shown(row, schemas) for row in made]
    said["state"] = [
        {
            "key": repr(key_said(key)),
            "before": repr(letter.state.get(key)),
            "after": repr(state.data.get(key)),
        }
        for key in sorted(letter.state.keys() | state.data.keys())
        if letter.state.get(key) != state.data.get(key)
    ]
    if unused := step.unused():
        return {**said, "ended": "diverges", "why": f"recorded, but not asked for: {unused}"}
    return {**said, "ended": "got through"}


def _shown(row: tuple[Any, ...], schemas: Mapping[OutputName, pa.Schema]) -> str:
    output = output_of(row)
    said = repr(dict(zip(schemas[output].names, row, strict=True)))
    return f"{said} in the side output {output!r}" if output else said


def load(named: str) -> Callable[..., Any]:
    """The function that is named `module:function`."""
    found = named_object(named)
    if not callable(found):
        raise ConfigurationError(f"{named} is no function")
    function: Callable[..., Any] = found
    return function


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("letter", type=Path)
    parser.add_argument("function")
    parser.add_argument("answer", type=int)
    parser.add_argument("--recorded-only", action="store_true")
    given = parser.parse_args()
    try:
        letter = dead_letters.decode(given.letter.read_bytes(), str(given.letter))
        if letter.intercept:
            install()  # before the function's module is loaded
        said = replay_letter(letter, load(given.function), recorded_only=given.recorded_only)
    except ConfigurationError as error:
        said = {"ended": "cannot be replayed", "why": str(error)}
    sys.stdout.flush()
    with open(given.answer, "wb") as answer:
        answer.write(json.dumps(said).encode())
    os._exit(0)  # whatever threads the function has started


if __name__ == "__main__":
    main()
