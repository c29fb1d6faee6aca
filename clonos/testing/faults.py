"""Scripted faults: real kills at chosen points, as a feature of the library.

A script is a list of faults. Each names a *point* of execution, where it applies (node name, instance, epoch, after how
many input records), and what happens there: the process is killed, the Spark task fails, or the driver is killed, each
for real. A fault fires once, across every restart: before it fires it leaves a mark in a directory that outlives it.

    clonos.testing.faults.script(
        Fault(Point.INPUT, Strike.REPLICA, operator="ledger", instance=0, after=1000),
        Fault(Point.AFTER_COMMIT, Strike.DRIVER, operator="out"),
    )

Given to a query with `.option("clonos.faults", script)`; on a stock Spark query, `wrap(fn, script, marks)` puts the
INPUT point into a function for `mapInArrow`, `mapInPandas` or `applyInPandasWithState`.
"""

from __future__ import annotations

import enum
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clonos.errors import ConfigurationError, FaultInjected
from clonos.json_text import parsed_json


class Point(enum.Enum):
    """Where a fault may fire."""

    INPUT = "input"  # after `after` input records of the instance
    OUTPUT = "output"  # in the middle of an output bundle: half of its bytes have left
    BEFORE_COMMIT = "before_commit"  # the sink is about to make a bundle visible
    AFTER_COMMIT = "after_commit"  # it just has
    BEFORE_SNAPSHOT = "before_snapshot"  # the epoch's input is exhausted
    AFTER_SNAPSHOT = "after_snapshot"  # the epoch's snapshot is durable, the stage has not returned
    BEFORE_SPARK_COMMIT = "before_spark_commit"  # the stage returns, Spark has not committed the epoch
    RECOVERY = "recovery"  # something is restored, the log is fetched, the replay begins


class Strike(enum.Enum):
    """What a fault does."""

    REPLICA = "replica"  # SIGKILL of the process at the point
    TASK = "task"  # the Spark task fails
    DRIVER = "driver"  # SIGKILL of the driver's processes
    STOP = "stop"  # SIGSTOP of the process at the point: it hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. None matches everything."""

    point: Point
    strike: Strike
    operator: str | None = None
    instance: int | None = None
    epoch: int | None = None
    after: int = 0
    asked: str = ""  # not before there is a file of this name among the marks

    @property
    def mark(self) -> str:
        """Its name on disk."""
        return "-".join(str(getattr(v, "value", v)) for v in asdict(self).values()).replace("/", "_")


def script(*faults: Fault) -> str:
    """Faults as the text that a query takes. The same fault may be given several times: it fires so often."""
    for fault in faults:
        _check(fault)
    return json.dumps([{k: getattr(v, "value", v) for k, v in asdict(fault).items()} for fault in faults])


def read_script(text: str) -> list[Fault]:
    """Raises ConfigurationError."""
    if not text:
        return []
    try:
        faults = [
            Fault(**{**said, "point": Point(said["point"]), "strike": Strike(said["strike"])})
            for said in parsed_json(text)
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"a fault script cannot be read: {error}", hint="Make it with clonos.testing.faults.script()"
        ) from error
    for fault in faults:
        _check(fault)
    return faults


def _check(fault: Fault) -> None:
    if fault.point is Point.BEFORE_SPARK_COMMIT and fault.strike is Strike.TASK:
        raise ConfigurationError(
            "a task cannot fail before Spark's commit: its stage has returned",
            hint="Let it fail after the snapshot of the sink, or strike the driver",
        )
    if "/" in fault.asked:
        raise ConfigurationError(f"{fault.asked!r} is not the name of a file among the marks")


class FaultInjector:
    """The faults that concern one instance."""

    def __init__(
        self,
        faults: Sequence[Fault],
        *,
        operator: str,
        instance: int | None,
        marks: Path,
        driver_pids: Sequence[int] = (),
    ) -> None:
        self._faults = [
            (f"{index}-{fault.mark}", fault)
            for index, fault in enumerate(faults)
            if fault.operator in (None, operator)
            and (None in (fault.instance, instance) or fault.instance == instance)
        ]
        self._marks = marks
        self._driver_pids = tuple(driver_pids)
        self._where = f"operator {operator!r}, instance {instance}"
        self.active = bool(self._faults)

    def armed(self, point: Point, epoch: int, processed: int = 0) -> bool:
        """Whether a fault would fire at this point."""
        return any(self._matches(fault, point, epoch, processed) for _, fault in self._faults)

    def reached(self, point: Point, epoch: int, processed: int = 0) -> None:
        """Fire what is due at this point. May not return; raises FaultInjected for a task's failure."""
        for mark, fault in list(self._faults):
            if not self._matches(fault, point, epoch, processed):
                continue
            self._faults.remove((mark, fault))
            if self._claim(mark):
                self._strike(fault)

    def _matches(self, fault: Fault, point: Point, epoch: int, processed: int) -> bool:
        due = fault.point is point and fault.epoch in (None, epoch) and processed >= fault.after
        return due and (not fault.asked or (self._marks / fault.asked).exists())

    def _claim(self, mark: str) -> bool:
        self._marks.mkdir(parents=True, exist_ok=True)
        try:
            with open(self._marks / mark, "x") as file:
                file.write(str(time.time()))
        except FileExistsError:
            return False
        return True

    def _strike(self, fault: Fault) -> None:
        if fault.strike is Strike.TASK:
            raise FaultInjected(f"a scripted failure at {fault.point.value} of {self._where}")
        if fault.strike is Strike.DRIVER:
            for pid in self._driver_pids:
                os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGSTOP if fault.strike is Strike.STOP else signal.SIGKILL)


def wrap(
    fn: Callable[..., Any],
    text: str,
    marks: str,
    *,
    operator: str = "native",
    driver_pids: Sequence[int] = (),
) -> Callable[..., Any]:
    """A function of a stock Spark query with the INPUT point in it.

    `fn` is what `mapInArrow`, `mapInPandas` (one iterator argument) or `applyInPandasWithState` (key, iterator, state)
    takes; records are counted per worker process.
    """
    faults = read_script(text)
    if any(fault.point is not Point.INPUT for fault in faults):
        raise ConfigurationError("a stock Spark query has no other fault point than INPUT")
    counted = [0]

    def watched(batches: Iterator[Any], injector: FaultInjector) -> Iterator[Any]:
        for batch in batches:
            yield batch
            counted[0] += len(batch)
            injector.reached(Point.INPUT, -1, counted[0])

    def wrapped(*args: Any) -> Any:
        injector = FaultInjector(
            faults, operator=operator, instance=None, marks=Path(marks), driver_pids=driver_pids
        )
        if len(args) == 1:
            return fn(watched(args[0], injector))
        return fn(args[0], watched(args[1], injector), *args[2:])

    return wrapped
