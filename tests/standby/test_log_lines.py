"""What servers, replicas and the driver write for operators, as text and as JSON."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from clonos_standby.server.log import FORMAT, QUERY, JsonLines, about, driver_writes_json, inherited

SPEAKER = """
from clonos_standby.server.log import Level, log, name_operators, speak_of
log("driver_gone", "the driver is gone", level=Level.INFO)
name_operators({2: "first"})
speak_of(node=2, instance=1)
speak_of(epoch=7)
log("failed", "in two\\nlines, \\udcff", level=Level.ERROR)
log("replica_died", "it died", node=3, instance=0)
"""


def written(form: str) -> list[str]:
    """What a process writes that inherits this form."""
    done = subprocess.run(
        [sys.executable, "-c", SPEAKER.replace("\\\\", "\\")],
        env={**os.environ, **inherited("q1", form)},
        stderr=subprocess.PIPE,
        check=True,
    )
    return done.stderr.decode().splitlines()


def test_as_text_a_line_has_its_time_the_process_and_the_message() -> None:
    lines = written("text")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ process \d+: the driver is gone", lines[0])
    assert "in two" in lines[1] and "lines" in lines[2]


def test_as_json_a_line_is_an_object_that_says_of_what_it_speaks() -> None:
    said: list[dict[str, Any]] = [json.loads(line) for line in written("json")]
    for one in said:
        assert dt.datetime.fromisoformat(one.pop("time")).utcoffset() == dt.timedelta()
        assert one.pop("process") > 0 and one.pop("query") == "q1"
    assert said == [
        {"level": "info", "event": "driver_gone", "message": "the driver is gone"},
        {
            "level": "error", "operator": "first", "instance": 1, "epoch": 7,
            "event": "failed", "message": "in two\nlines, \udcff",
        },
        {
            "level": "warning", "operator": "3", "instance": 0, "epoch": 7,
            "event": "replica_died", "message": "it died",
        },
    ]  # fmt: skip


def test_without_a_server_that_says_otherwise_it_is_text() -> None:
    assert set(inherited("q1", "json")) == {FORMAT, QUERY}
    environment = {name: value for name, value in os.environ.items() if name not in (FORMAT, QUERY)}
    done = subprocess.run(
        [sys.executable, "-c", "from clonos_standby.server.log import log; log('e', 'text')"],
        env=environment,
        stderr=subprocess.PIPE,
        check=True,
    )
    assert done.stderr.endswith(b": text\n")


def test_the_drivers_logger_writes_the_same_form(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("clonos")
    before = logger.handlers[:], logger.propagate
    try:
        driver_writes_json()
        driver_writes_json()
        logger.warning("restarting in %d s", 2, extra=about("query_restarts", query="q1", epoch=4))
        try:
            raise ValueError("why")
        except ValueError:
            logger.exception("without more")
    finally:
        logger.handlers[:], logger.propagate = before
    first, second = map(json.loads, capfd.readouterr().err.splitlines())
    assert (first["level"], first["event"], first["query"], first["epoch"]) == (
        "warning", "query_restarts", "q1", 4,
    )  # fmt: skip
    assert first["message"] == "restarting in 2 s"
    assert second["level"] == "error" and second["message"].endswith("ValueError: why")
    assert isinstance(JsonLines(), logging.Formatter)
