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

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `make test`, where two processes share the tests, the second at low priority: it takes what only computes,
    and the first, one after the other, whatever starts processes and awaits what they do."""
    for item in items:
        only_computes = item.path.is_relative_to(TESTS / "core") or item.path.is_relative_to(TESTS / "sim")
        item.add_marker(pytest.mark.xdist_group(item.path.stem if only_computes else "processes"))


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
