"""What all tests share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

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
