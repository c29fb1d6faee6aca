"""How an operator is played, by the operator driver.

The clock stands still while records come, so that runs differ in nothing else, and moves on at the end, so that timers
fire.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from clonos.api.streams import CausalStream
from clonos.errors import ClonosError, DivergenceError
from clonos.protocol.engine.instance import Row
from clonos.protocol.recovery.dependence import Service
from clonos.testing.classification.observation import Observation, OutputRow
from clonos.testing.classification.script import Recorded, Script
from clonos.testing.classification.staged_services import Stage
from clonos.testing.driver import OperatorDriver, SideOutput
from clonos.testing.driver.recording import Recording
from clonos.values.canonical_text import canonical

AFTERWARDS_S: Final = 3600
"""How long the clock goes on behind the last record."""
_NO_STATE: Final = canonical(None)


class Player:
    """Plays one operator. Its drivers have their folders in `folder`."""

    def __init__(self, operator: CausalStream, key: Sequence[str], stage: Stage, folder: Path) -> None:
        """`key` has the names of the key's columns."""
        self._operator = operator
        self._key = key
        self._stage = stage
        self._folder = folder

    def play(self, script: Script) -> Recorded:
        rows: list[Row] = []
        used = set[Service]()
        with self._driver(script) as driver:
            try:
                for bundle in script.bundles:
                    rows += driver.feed(bundle)
                    used |= _timers_set(driver)
                rows += driver.advance(AFTERWARDS_S)
                last, recording = driver.end_with_recording()
            except ClonosError as error:
                raised = Observation(_shown(rows, self._key), {}, {}, error.message)
                return Recorded(raised, frozenset(used), None)
        seen = recording.seen
        states = {_one(key): text for key, text in seen.states.items() if text != _NO_STATE}
        timers = {
            _one(key): canonical([(timer.name, timer.due_us, timer.event) for timer in pending])
            for key, pending in seen.timers.items()
        }
        observation = Observation(_shown([*rows, *last], self._key), states, timers)
        return Recorded(observation, recording.services | used, recording)

    def replay(self, script: Script, recording: Recording) -> str:
        """How the replay differs; "" where it does not."""
        try:
            self._driver(script, recording).close()
        except DivergenceError as error:
            return error.message
        except ClonosError as error:
            return f"the replay raises: {error.message}"
        return ""

    def _driver(self, script: Script, recording: Recording | None = None) -> OperatorDriver:
        self._stage.begin_run(script.seed)
        return OperatorDriver(
            self._operator,
            seed=script.seed,
            services=self._stage.services,
            repeats=None if recording is None else (script.rows, recording),
            folder=self._folder,
        )


def _timers_set(driver: OperatorDriver) -> set[Service]:
    return {
        Service.EVENT_TIMER if timer.event else Service.TIMER
        for key in driver.keys
        for timer in driver.timers(key)
    }


def _shown(rows: Sequence[Row], key: Sequence[str]) -> tuple[OutputRow, ...]:
    return tuple([OutputRow(_key_of(row, key), repr(row)) for row in rows])


def _key_of(row: Row, key: Sequence[str]) -> str:
    output, plain = (row.output, row.row) if isinstance(row, SideOutput) else ("", row)
    values = [getattr(plain, name, None) for name in key] if all(hasattr(plain, name) for name in key) else []
    shown = _one(values)
    return f"{shown} of {output!r}" if output else shown


def _one(key: Sequence[Any]) -> str:
    """A key as text: of one column its value."""
    return canonical(key[0]) if len(key) == 1 else canonical(tuple(key))
