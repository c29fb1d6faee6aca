"""What all tests share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# How long an example takes says something about the machine.
settings.register_profile("clonos", deadline=None)
settings.load_profile("clonos")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The source tree."""
    return ROOT


@pytest.fixture(scope="session")
def plugin_jar() -> Path:
    """The plugin's jar, made from the sources as they are now."""
    subprocess.run([sys.executable, "hatch_build.py"], cwd=ROOT, check=True, timeout=240)
    from clonos.environment import jar_path

    return jar_path()


PROCESSES = "processes"


class _Lanes(LoadScopeScheduling):
    """For `make test`, where two processes share the tests, the second at low priority: it takes what only computes,
    file by file, and the first, one after the other, whatever starts processes and awaits what they do."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return path if path.startswith(("tests/core/", "tests/sim/")) else PROCESSES

    def _assign_work_unit(self, node: WorkerController) -> None:
        if PROCESSES in self.workqueue:
            self.workqueue.move_to_end(PROCESSES, last=bool(node.gateway.spec.nice))
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Lanes:
    return _Lanes(config, log)


class _RanNothing:
    """A run in which no test was carried out, because all were skipped, is not a success."""

    def __init__(self) -> None:
        self.ran = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call" and not report.skipped

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (
            not self.ran
            and session.exitstatus == pytest.ExitCode.OK
            and not session.config.option.collectonly
        ):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_RanNothing())
