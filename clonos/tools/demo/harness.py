"""Runs one scenario in one mode: the systems side by side on the same input, struck alike, judged alike.

Per system a `SystemRun` holds the driver process and watches the output table. One loop drives them all: look
at the tables, hear the drivers, strike what is due. The input is replayed by a thread. Before the replay, a
handful of events goes through, so that all processes are warm when it counts.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clonos.errors import ClonosError
from clonos.sources.log_writer import LogWriter
from clonos.testing.ledger import Verdict
from clonos.tools.demo.again import RunAgain, run_again
from clonos.tools.demo.driver import Driver, DriverFailed, System
from clonos.tools.demo.job import Job, Mode
from clonos.tools.demo.plan import Scenario, Strike
from clonos.tools.demo.script import script_until
from clonos.tools.demo.verdicts import Result, result_of
from clonos.tools.demo.watch import Sighting, TableWatch, outage_ms
from clonos.tools.flights.data import ORIGINS, FlightEvent, expected_ids, replay
from clonos.tools.flights.weather import WeatherService

__all__ = ["Case", "Outcome", "SystemRun", "run_case"]

WARM_UP_EVENTS = 30
START_TIMEOUT_S = 240.0
QUIET_S = 2.5  # after the last input was shown: late repetitions
SILENCE_S = 60.0  # without any output: what is missing now stays missing
DRAIN_TIMEOUT_S = 240.0
_LOOK_S = 0.01
_REPORT_S = 0.25


@dataclass(frozen=True, slots=True)
class Case:
    """What to run."""

    scenario: Scenario
    mode: Mode
    systems: tuple[System, ...]
    events: tuple[FlightEvent, ...]
    seconds: float  # the replay takes so long
    folder: Path
    archive: bool = False  # what the causal side did can be looked into afterwards


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one system made of it. Times in seconds since 1970."""

    scenario: str
    mode: Mode
    system: System
    verdict: Verdict
    restarts: int
    outage_ms: int
    strikes: tuple[tuple[float, str], ...]
    planned_strikes: int
    sightings: tuple[Sighting, ...]
    appended: Mapping[str, float]
    failure: str | None = None
    again: RunAgain | None = None  # the causal side only

    @property
    def result(self) -> Result:
        """By the oracle; of the causal side also whether it was struck as planned, or it would prove nothing."""
        if self.system == "native":
            return result_of(exact=self.verdict.exact, failed=False, struck_as_planned=True)
        return result_of(
            exact=self.verdict.exact,
            failed=self.failure is not None,
            struck_as_planned=len(self.strikes) >= self.planned_strikes,
        )

    @property
    def exact(self) -> bool:
        """Whether it was shown that the output is exact."""
        return self.result is Result.EXACT


@dataclass
class SystemRun:
    """One system in one case."""

    system: System
    job: Job
    scenario: Scenario
    events: tuple[FlightEvent, ...]
    watch: TableWatch = field(init=False)
    driver: Driver = field(init=False)
    restarts: int = 0
    ready: bool = False
    failure: str | None = None
    strikes: list[tuple[float, str]] = field(default_factory=list)
    _due: list[Strike] = field(init=False)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)
    _armed: Strike | None = None
    _asked_at: float = 0.0
    _marks_seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.watch = TableWatch(self.job.database)
        self._due = list(self.scenario.strikes)
        self._launch()
        self._thread = threading.Thread(target=self._run, name=f"run-{self.system}")
        self._thread.start()

    def _launch(self) -> None:
        if self.system == "clonos":
            script = script_until(self._due, self._shown(), self.events, self.job.instances)
            self.job = replace(self.job, script=script)
        self.ready = False
        self.driver = Driver(self.system, self.job)

    # ------------------------------------------------------------- the loop

    def _run(self) -> None:
        try:
            while not self._over.wait(_LOOK_S):
                self._step()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        try:
            self.driver.stop()
            self.watch.look()
        except (ClonosError, sqlite3.Error) as error:
            self.failure = self.failure or str(error)
        self.watch.close()

    def _step(self) -> None:
        """Look, listen, strike."""
        news = self.watch.look()
        while (event := self.driver.event()) is not None:
            self._hear(event)
        self._note_marks()
        if self._due and self.failure is None and self.ready:
            strike = self._due[0]
            if self._scripted(strike):
                if self._shown() > strike.at + 0.3:
                    self._due.pop(0)  # it did not come about; the outcome will say so
            elif self._shown() >= strike.at and (news or strike.kind == "driver"):
                self._strike(strike)

    def _shown(self) -> float:
        return len(self.watch.first_seen) / len(self.events)

    def _scripted(self, strike: Strike) -> bool:
        return self.system == "clonos" and strike.kind in ("task", "sink")

    def _hear(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "ready":
            self.ready = True
            self.watch.last_change = time.time()
        elif kind == "restart":
            self.restarts += 1
        elif kind == "workers":
            self._kill_worker(event["workers"])
        elif kind == "failed":
            self.failure = str(event["reason"])
        elif kind == "gone" and self.failure is None:
            self.failure = f"the {self.system} driver ended by itself: {self.driver.last_words()}"

    def _note_marks(self) -> None:
        """Strikes that fired by themselves: the native side renames the request, the causal side leaves a
        mark.
        """
        fired = [*Path(self.job.faults).glob("*.fired-*"), *Path(self.job.marks).glob("*")]
        for mark in fired:
            if mark.name not in self._marks_seen:
                self._marks_seen.add(mark.name)
                kind = "task" if mark.name.startswith("task") or "-task-" in mark.name else "sink"
                answered = next((strike for strike in self._due if strike.kind == kind), None)
                self.strikes.append((mark.stat().st_ctime, str(answered or kind)))
                if answered is not None:
                    self._due.remove(answered)

    # ------------------------------------------------------------- striking

    def _strike(self, strike: Strike) -> None:
        if strike.kind == "driver":
            self._due.pop(0)
            self.strikes.append((self.driver.kill(), "driver"))
            self.restarts += 1
            self._launch()
        elif strike.kind == "worker":
            if time.monotonic() - self._asked_at > 0.5:
                self._asked_at = time.monotonic()
                self.driver.send("workers")
        elif self._armed is not strike:
            self._armed = strike
            self.driver.send("fault", point=f"{strike.kind}-{strike.role}")

    def _kill_worker(self, workers: list[dict[str, Any]]) -> None:
        strike = self._due[0] if self._due else None
        if strike is None or strike.kind != "worker":
            return
        able = sorted((w for w in workers if w["role"] == strike.role), key=lambda w: int(w["instance"]))
        # A worker that idles in the pool is no worthy target: the last active one
        if self.system == "native":
            able = [w for w in workers if w["role"] == strike.role][:1]
        if not able:
            return
        victim = able[strike.pick % len(able)]
        if kill(int(victim["pid"])):
            self.strikes.append((time.time(), str(strike)))
            self._due.pop(0)

    # ------------------------------------------------------------ finishing

    def settled(self, expected: set[str], now: float) -> bool:
        """Whether nothing more is to be expected."""
        if self.failure is not None:
            return True
        if not self.ready:
            return False
        silent = now - self.watch.last_change
        return silent > (QUIET_S if len(self.watch.first_seen) >= len(expected) else SILENCE_S)

    def finish(self) -> None:
        """Tell the thread, which ends the driver; `join` waits for that."""
        self._over.set()

    def join(self) -> None:
        """Wait until the driver has ended; an error in that is part of the outcome."""
        self._thread.join()

    def outcome(self, mode: Mode, expected: set[str], appended: Mapping[str, float]) -> Outcome:
        """The verdict and what was measured."""
        return Outcome(
            scenario=self.scenario.name,
            mode=mode,
            system=self.system,
            verdict=self.watch.verdict(expected),
            restarts=self.restarts,
            outage_ms=outage_ms([at for at, _ in self.strikes], appended, self.watch.first_seen),
            strikes=tuple(self.strikes),
            planned_strikes=len(self.scenario.strikes),
            sightings=tuple(self.watch.sightings),
            appended=appended,
            failure=self.failure,
            again=run_again(self.job) if self.system == "clonos" else None,
        )


def kill(pid: int) -> bool:
    """SIGKILL; whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Input:
    """The replay, in a thread of its own."""

    def __init__(self, case: Case, writer: LogWriter) -> None:
        self.appended: dict[str, float] = {}
        self._case = case
        self._writer = writer
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def warm_up(self) -> None:
        self._replay(self._case.events[:WARM_UP_EVENTS], float("inf"))

    def start(self) -> None:
        rest = self._case.events[WARM_UP_EVENTS:]
        speedup = max(1.0, (rest[-1].at_s - rest[0].at_s) / (self._case.seconds * self._case.scenario.pace))
        self._thread = threading.Thread(target=self._replay, args=(rest, speedup), name="replay")
        self._thread.start()

    def _replay(self, events: tuple[FlightEvent, ...], speedup: float) -> None:
        replay(
            self._writer,
            events,
            speedup,
            partitions=len(ORIGINS),
            on_append=lambda event: self.appended.__setitem__(event.input_id, time.time()),
            stop=self._stop,
        )

    @property
    def done(self) -> bool:
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


Report = Callable[[str, list[SystemRun], int], None]


def run_case(case: Case, report: Report = lambda phase, runs, appended: None) -> list[Outcome]:
    """Run it; one outcome per system. `report(phase, runs, appended)` is called a few times a second."""
    shutil.rmtree(case.folder, ignore_errors=True)
    case.folder.mkdir(parents=True)
    expected = expected_ids(case.events)
    runs: list[SystemRun] = []
    log = str(case.folder / "input")
    with WeatherService() as weather, LogWriter(log, len(ORIGINS)) as writer:
        source = Input(case, writer)
        try:
            for system in case.systems:
                job = Job(
                    mode=case.mode,
                    log=log,
                    folder=str(case.folder / system),
                    weather=weather.url,
                    standby=case.scenario.standby,
                    archive=case.archive,
                )
                runs.append(SystemRun(system, job, case.scenario, case.events))
            _conduct(case, runs, source, expected, report)
        finally:
            source.stop()
            for run in runs:
                run.finish()
            for run in runs:
                run.join()
    return [run.outcome(case.mode, expected, source.appended) for run in runs]


def _conduct(case: Case, runs: list[SystemRun], source: Input, expected: set[str], report: Report) -> None:
    def until(phase: str, over: Callable[[], bool], timeout_s: float) -> bool:
        deadline, told = time.monotonic() + timeout_s, 0.0
        while not over():
            if time.monotonic() > deadline:
                return False
            if time.monotonic() - told > _REPORT_S:
                told = time.monotonic()
                report(phase, runs, len(source.appended))
            time.sleep(_LOOK_S)
        return True

    def all_ready() -> bool:
        return all(run.ready or run.failure for run in runs)

    def warm() -> bool:
        return all(run.failure or len(run.watch.first_seen) >= WARM_UP_EVENTS for run in runs)

    for phase, condition in (("starting", all_ready), ("warming up", warm)):
        if phase == "warming up":
            source.warm_up()
        if not until(phase, condition, START_TIMEOUT_S):
            late = [run for run in runs if not run.ready or len(run.watch.first_seen) < WARM_UP_EVENTS]
            raise DriverFailed(
                f"{phase} took more than {START_TIMEOUT_S:.0f} s: " + ", ".join(run.system for run in late),
                hint="\n".join(run.driver.last_words() for run in late),
            )
    source.start()
    until("running", lambda: source.done, case.seconds * case.scenario.pace + 60)
    for run in runs:
        run.watch.last_change = time.time()
    until("draining", lambda: all(run.settled(expected, time.time()) for run in runs), DRAIN_TIMEOUT_S)
    report("done", runs, len(source.appended))
