"""A driver of the demo without Spark: `exact` continues from what is visible, `sloppy` begins again after
every death.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clonos.sources import read
from clonos.tools.demo.job import TABLE, Job, Pilot
from clonos.tools.demo.native import create_table
from clonos.tools.flights.operators import COMPENSATION_COLUMNS, LEGS_COLUMNS, compensation, legs


class Context:
    random = random.Random()

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def now(self) -> datetime:
        return datetime.now(UTC)

    def call(self, function: Any, *arguments: Any) -> Any:
        return function(*arguments)


class FakeJob:
    def __init__(self, job: Job, exact: bool) -> None:
        self.job = job
        self.legs: dict[str, dict[str, Any]] = {}
        self.carriers: dict[str, dict[str, Any]] = {}
        self.done: set[str] = set()
        self.read_up_to = [-1, -1, -1]
        create_table(job.database)
        self.connection = sqlite3.connect(job.database, isolation_level=None)
        self.connection.row_factory = sqlite3.Row
        if exact:
            for row in self.connection.execute(f"SELECT * FROM {TABLE} ORDER BY rowid"):
                self.done.add(row["input_id"])
                self.legs[row["tailnum"]] = {"n": row["leg_n"], "hash": row["leg_hash"]}
                self.carriers[row["carrier"]] = {"n": row["n"], "hash": row["hash"], "used": row["used"]}

    def step(self) -> None:
        function = legs(self.job.weather)
        for partition in range(3):
            for record in read(self.job.log, partition):
                if record.position > self.read_up_to[partition]:
                    self.read_up_to[partition] = record.position
                    row = SimpleNamespace(**json.loads(record.payload))
                    if row.input_id not in self.done:
                        self.process(function, row)

    def process(self, function: Any, row: Any) -> None:
        for out in function((row.tailnum,), row, Context(self.legs.setdefault(row.tailnum, {}))):
            leg = SimpleNamespace(**dict(zip(LEGS_COLUMNS, out)))
            ctx = Context(self.carriers.setdefault(leg.carrier, {}))
            for last in compensation((leg.carrier,), leg, ctx):
                marks = ", ".join("?" * len(COMPENSATION_COLUMNS))
                self.connection.execute(f"INSERT INTO {TABLE} VALUES ({marks})", last)


def main(path: str, exact: bool) -> int:
    pilot, job = Pilot(), Job.load(path)
    fake = FakeJob(job, exact)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with Path(job.folder, "pids").open("a") as pids:
        pids.write(f"{os.getpid()} {child.pid}\n")
    faults = json.loads(job.script or "[]")
    pilot.say("ready")
    while (command := pilot.command(0.02) or {}).get("do") != "stop":
        if command.get("do") == "workers":
            roles = ("legs", "compensation", "sink")
            pilot.say("workers", workers=[{"role": r, "instance": 0, "pid": child.pid} for r in roles])
        elif command.get("do") == "fault":
            Path(job.faults, f"{command['point']}.fired-{os.getpid()}").touch()
        if child.poll() is not None:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        fake.step()
        for fault in list(faults):
            if fake.carriers:
                faults.remove(fault)
                Path(job.marks).mkdir(parents=True, exist_ok=True)
                Path(job.marks, f"0-{fault['point']}-{fault['strike']}-x").touch()
    child.kill()
    child.wait()
    pilot.say("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], exact=False))
