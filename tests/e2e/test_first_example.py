"""The first example of README.md, as it stands there, beside the programs that docs/containers.md has for it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "kafka"
DECIDED = re.compile(r"(\d+) of \d+ payments are decided, 0 of \d+ cards not exactly")
WAITS = "query.awaitTermination()\n"
PATIENCE_S = 240.0


def shown_first() -> str:
    """The program of README.md."""
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    return str(program)


@contextlib.contextmanager
def started(command: list[str], output: IO[bytes] | int) -> Iterator[subprocess.Popen[bytes]]:
    """A program beside the test, which is killed at the end."""
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--master local[8] pyspark-shell"}
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def paying(broker: KafkaBroker) -> Iterator[None]:
    """Payments come, and the topics are there."""
    with started([str(EXAMPLES / "payments.py"), broker.servers], subprocess.PIPE) as process:
        assert process.stdout is not None
        assert any(b"payments so far" in line for line in process.stdout)
        yield


def decided(broker: KafkaBroker) -> int:
    """How many payments are decided; each once, or the test fails."""
    command = [sys.executable, str(EXAMPLES / "audit.py"), broker.servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    found = DECIDED.fullmatch(done.stdout.strip())
    assert found and not done.returncode, done.stdout + done.stderr
    return int(found[1])


def await_decided(broker: KafkaBroker, count: int, job: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while (found := decided(broker)) < count:
        assert job.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
    return found


def test_the_first_example_decides_every_payment_once(
    tmp_path: Path, brokers: Callable[..., contextlib.AbstractContextManager[KafkaBroker]]
) -> None:
    """The whole of it, its driver killed with SIGKILL and started again."""
    program, log = tmp_path / "first.py", tmp_path / "first.log"
    text = (shown_first() + WAITS).replace("/shared/first", str(tmp_path / "checkpoint"))
    with brokers() as broker, paying(broker), log.open("ab") as output:
        program.write_text(text.replace("kafka:19092", broker.servers), "utf-8")
        with started([str(program)], output) as job:
            count = await_decided(broker, 30, job, log)
        with started([str(program)], output) as job:
            await_decided(broker, count + 50, job, log)


def test_the_program_of_the_readme_is_the_file_that_the_containers_have() -> None:
    assert (EXAMPLES / "decide.py").read_text("utf-8").split('"""\n\n', 1)[1] == shown_first() + WAITS
