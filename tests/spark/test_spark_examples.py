"""Examples of Spark's own documentation run with the one word, in both modes, while their replicas are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples as modules, here and in the replicas."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def text(place: Place) -> Any:
    """Lines and the second in which they were written."""
    return place.read("value string, timestamp long")


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_word_sessions(place: Place, mode: str) -> None:
    import word_sessions

    lines = [{"value": "one two three", "timestamp": n} for n in range(10)]
    place.start(word_sessions.sessions(word_sessions.words(clonos.causal(text(place)))), mode)
    place.write(lines[:5])
    time.sleep(0.5)
    place.replicas(5)
    for instance in (0, 1):
        place.kill(node=3, instance=instance)
    place.write([*lines[5:], {"value": "two", "timestamp": 3}])

    def counted() -> dict[str, int]:  # a slow machine may make two sessions of one
        counts: dict[str, int] = {}
        for row in place.rows():
            counts[row["sessionId"]] = counts.get(row["sessionId"], 0) + row["count"]
        return counts

    place.until(lambda: sum(counted().values()) >= 31, "all words in sessions")
    assert counted() == {"one": 10, "two": 11, "three": 10}
    rows = place.rows()
    assert min(row["start"] for row in rows) == 0 and max(row["end"] for row in rows) == 9
    assert place.query.restarts == []


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_faulty_sensors(place: Place, mode: str) -> None:
    import faulty_sensors

    readings = [{"id": f"s{n % 3}", "temperature": None if n % 5 == 4 else 80 + n} for n in range(60)]
    place.start(faulty_sensors.violations(place.causal("id string, temperature int")), mode)
    place.write(readings[:30])
    place.until(lambda: bool(place.rows()), "rows")
    for instance in (0, 1):
        place.kill(instance=instance)
    place.write(readings[30:])

    def latest() -> dict[str, tuple[int, int]]:
        return {row["id"]: (row["readings"], row["violations"]) for row in place.rows()}

    expected = {}
    for sensor in ("s0", "s1", "s2"):
        mine = [r["temperature"] for r in readings if r["id"] == sensor and r["temperature"] is not None]
        expected[sensor] = (len(mine), sum(temperature > 100 for temperature in mine))
    place.until(lambda: latest() == expected, f"{expected}")
    for sensor in expected:
        counts = [row["readings"] for row in place.rows() if row["id"] == sensor]
        assert counts == sorted(set(counts))
    assert place.query.restarts == []


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_downtime(place: Place, mode: str) -> None:
    import downtime

    place.start(downtime.silences(place.causal("id string")), mode)
    place.write([{"id": "pump"}])
    place.until(lambda: len(place.rows()) >= 2, "first silence")
    owner = clonos_instance("pump")
    place.kill(instance=owner)
    place.until(lambda: len(place.rows()) >= 4, "third silence")
    silences = [row["silent_ms"] for row in place.rows()]
    assert silences[0] == 0 and silences[1] >= 1000
    assert all(after - before >= 1000 for before, after in pairwise(silences))
    assert place.query.restarts == []


def clonos_instance(key: str) -> int:
    from clonos.protocol.destination import destination

    return destination((key,), 2)


def test_an_example_runs_as_a_script() -> None:
    command = [sys.executable, str(EXAMPLES / "faulty_sensors.py"), "--kill"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted((row["id"], row["readings"], row["violations"]) for row in rows)[-1] == ("s1", 5, 4), (
        done.stderr
    )
