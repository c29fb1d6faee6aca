"""What is wrong with a query, and what to do about it: the table of docs/operations.md as rules over its state.

Each rule looks at the state as `clonos status --json` has it, and at how fast the query has gone. It says nothing where
there is nothing to do.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from clonos.storage.location import on_this_host
from clonos.tools.serve.rates import Rates

STANDS_STILL_SECONDS: Final = 60.0
LATELY_SECONDS: Final = 600.0
OFTEN: Final = 3
_FOR_GOOD: Final = ("GapError", "LogConflict", "DivergenceError", "PoisonRecord", "CheckpointMismatch")

Said: TypeAlias = Mapping[str, Any]


class Level(Enum):
    """How urgent it is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Advice:
    """What is seen, what it means and what to do; `command` is a line for a shell, "" where there is none."""

    level: Level
    seen: str
    do: str
    command: str = ""

    def to_document(self) -> dict[str, str]:
        return {**asdict(self), "level": self.level.value}


def advice(said: Said, rates: Rates, now: float) -> list[Advice]:
    """The most urgent first."""
    found = [one for rule in _RULES for one in rule(said, rates, now)]
    return sorted(found, key=lambda one: list(Level).index(one.level))


def _instances(said: Said) -> Iterator[tuple[str, Said, Said]]:
    for operator in said["operators"]:
        for each in operator["instances"]:
            yield f"{operator['operator']}/{each['instance']}", operator, each


def _ended_for_good(said: Said, rates: Rates, now: float) -> Iterator[Advice]:
    for failure in said["failures"]:
        if failure["error"] in _FOR_GOOD and now - failure["at"] < LATELY_SECONDS:
            yield Advice(
                Level.ERROR,
                f"{failure['error']} in {_who(failure)}: {failure['message'].partition(chr(10))[0]}",
                "It cannot go on exactly without you. Do not delete anything: the message says what is meant, and "
                "docs/operations.md what to do about each of its kind",
            )


def _restarts(said: Said, rates: Rates, now: float) -> Iterator[Advice]:
    if starts := rates.starts():
        yield Advice(
            Level.WARNING,
            f"the Spark query has been started again {starts} times in the last ten minutes",
            "Failures below say why, and the driver's log has each restart",
        )


def _stands_still(said: Said, rates: Rates, now: float) -> Iterator[Advice]:
    since, still = rates.committed_since(), rates.still_since()
    if said["epoch"] is None or since is None or now - since < STANDS_STILL_SECONDS:
        return
    seen = f"epoch {said['epoch']} has been under way for more than {now - since:.0f} s"
    if still is None or now - still < STANDS_STILL_SECONDS:
        yield Advice(Level.NOTE, f"{seen}, and rows are worked on", "A long epoch, or a replay: wait")
        return
    for name, _, each in _instances(said):
        if each["state"] == "busy":
            yield Advice(
                Level.WARNING,
                f"{seen}, and {name} has been given no row for {now - still:.0f} s",
                "There may be no input. If there is, the function waits for something: signal USR1 makes process "
                f"{each['pid']}{_on(each)} write its stacks to the file of the instance in its data directory",
                _here(each, f"kill -USR1 {each['pid']}"),
            )


def _processes(said: Said, rates: Rates, now: float) -> Iterator[Advice]:
    data = said["data"]
    if not said["spares"]:
        yield Advice(
            Level.WARNING,
            "no spare process is there",
            "One is started in a moment. If it stays so, processes cannot start: the last line says what they wrote",
            f"tail -n 1 {shlex.quote(data + '/deaths.jsonl')}",
        )
    if not said["server"]["grpc_pid"]:
        yield Advice(
            Level.WARNING,
            "no determinant service is there",
            "It is started again by its server; if it stays so, the server's log says why",
            f"tail {shlex.quote(data + '/server.err')}",
        )
    for name, _, each in _instances(said):
        if each["state"] == "stopped":
            yield Advice(
                Level.WARNING,
                f"process {each['pid']} of {name} was stopped by a signal{_on(each)}",
                "It is replaced when it has been silent for spark.clonos.replica.deadline; or let it go on there",
                _here(each, f"kill -CONT {each['pid']}"),
            )
        if each["standby"] and not each["standby"]["follows"]:
            yield Advice(Level.NOTE, f"the standby of {name} is catching up", "Nothing: it follows soon")


def _deaths(said: Said, rates: Rates, now: float) -> Iterator[Advice]:
    lately = [death for death in said["recent_deaths"] if now - death["at"] < LATELY_SECONDS]
    for (who, kind), times in Counter((_who(death), death["kind"]) for death in lately).items():
        if kind == "oom":
            yield Advice(
                Level.ERROR,
                f"{who} was killed for want of memory, {_times(times)} in ten minutes",
                "Its state or its bundles do not fit: give the host memory, or lower spark.clonos.bundle.rows or "
                "spark.clonos.state.cache",
            )
        elif kind == "hang":
            yield Advice(
                Level.WARNING,
                f"{who} gave no sign of life and was replaced, {_times(times)} in ten minutes",
                "The host swaps or is overloaded, or a function waits. If pauses are usual there, raise "
                "spark.clonos.replica.deadline",
            )
        elif times >= OFTEN and all(
            death.get("signal") == "SIGKILL" for death in lately if _who(death) == who
        ):
            yield Advice(
                Level.WARNING,
                f"{who} has been killed by SIGKILL {_times(times)} in ten minutes",
                "Its server did not do it: another program does, a person, or a limit of the host or container",
            )
        elif times >= OFTEN:
            yield Advice(
                Level.WARNING,
                f"{who} has died {_times(times)} in ten minutes",
                "A function or a library of its breaks the process: its last words are in the file of the instance "
                f"in {said['data']}/replicas",
            )


def _letters(said: Said, rates: Rates, now: float) -> Iterator[Advice]:
    for name, operator, each in _instances(said):
        if each["dead_letters"]:
            folder = f"{said['checkpoint']}/clonos/dead_letters/{operator['node']}/{each['instance']}"
            local = on_this_host(folder)
            yield Advice(
                Level.WARNING,
                f"{name} has passed over {each['dead_letters']} records, which are kept",
                "Look at one, mend the function, and run it on the record. Records that were passed over are not run "
                "again by the query"
                + ("" if local else f". They are in {folder}: bring one here for `clonos log inspect FILE`"),
                f"ls {shlex.quote(local)}; clonos log inspect {shlex.quote(local)}/FILE" if local else "",
            )


def _on(instance: Said) -> str:
    return f" on {instance['place']}" if instance["place"] else ""


def _here(instance: Said, command: str) -> str:
    """A number of a process means another one on another host."""
    return "" if instance["place"] else command


def _who(event: Mapping[str, Any]) -> str:
    return "a spare process" if event.get("node") is None else f"{event['operator']}/{event['instance']}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


_RULES: Final[tuple[Callable[[Said, Rates, float], Iterator[Advice]], ...]] = (
    _ended_for_good,
    _restarts,
    _stands_still,
    _processes,
    _deaths,
    _letters,
)
