"""The compose file, as docs/containers.md describes it: real containers, which are killed. Run by `make containers`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import composition
import pytest
from composition import ROOT, Composition

pytestmark = pytest.mark.soak

DECIDED = re.compile(r"^(\d+) of \d+ payments are decided, 0 of \d+ cards not exactly$", re.MULTILINE)
PATIENCE_S = 300.0
TABLE = "SELECT count(*), count(DISTINCT (card, n)) FROM decisions"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Composition]:
    reason = composition.why_not()
    if reason:
        pytest.skip(reason)
    with composition.composition(tmp_path) as running:
        yield running


def decided(services: Composition, more_than: int) -> int:
    """How many payments are decided when it is more than that; each once, or the test fails."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            said = services.at_desk("python", "examples/kafka/audit.py")
        except AssertionError as error:  # the broker is away, or a topic is not there yet
            if "not exactly" in str(error) or time.monotonic() > deadline:
                raise
            continue
        found = DECIDED.search(said)
        assert found and time.monotonic() < deadline, said
        if int(found[1]) > more_than:
            return int(found[1])


def kill(services: Composition, service: str) -> None:
    services.compose("kill", service)
    services.compose("start", service)


def test_the_first_example_is_exact_through_every_kill(services: Composition) -> None:
    """It is pasted into Python at the desk, as README.md says."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    services.compose("exec", "-T", "desk", "sh", "-c", "cat > /tmp/pasted", given=program)
    pasted = ("sh", "-c", "(cat /tmp/pasted; sleep infinity) | python -i > /tmp/log 2>&1")
    services.begin_at_desk(*pasted)
    shown = decided(services, 100)
    for service in ("worker-1", "worker-2", "kafka"):
        kill(services, service)
        shown = decided(services, shown + 100)
    kill(services, "desk")
    services.begin_at_desk("spark-submit", "--master", "spark://spark:7077", "examples/kafka/decide.py")
    decided(services, shown + 100)


def test_standbys_of_executors_and_a_table_are_exact_through_every_kill(services: Composition) -> None:
    services.begin_at_desk("sh", "-c", "python examples/kafka/decide_on_standbys.py > /tmp/log 2>&1")
    shown = decided(services, 100)
    for service in ("worker-1", "worker-2", "postgres", "kafka"):
        kill(services, service)
        shown = decided(services, shown + 100)
    kill(services, "desk")
    services.begin_at_desk("sh", "-c", "python examples/kafka/decide_on_standbys.py > /tmp/log 2>&1")
    shown = decided(services, shown + 100)
    query = ("psql", "-U", "clonos", "-h", "/tmp", "-tAc", TABLE, "clonos")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        rows, different = map(int, services.compose("exec", "-T", "postgres", *query).strip().split("|"))
        assert rows == different and time.monotonic() < deadline
        if rows >= shown:
            break
