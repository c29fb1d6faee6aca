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

LONG = (
    "e2e",
    "sim/test_sim_kept.py",
    "sim/test_sim_planted.py",
    "sinks/test_sink_crash.py",
    "spark/test_spark_before_causal.py",
    "spark/test_spark_channels.py",
    "spark/test_spark_examples.py",
    "spark/test_spark_time.py",
    "spark_plugin/test_executor_services.py",
    "standby/test_standby_launcher.py",
    "standby/test_standby_service.py",
    "tools/test_demo.py",
    "tools/test_inject.py",
)
"""What `make test` leaves to `make check`: whole queries under every kind of kill, every planted bug."""
SHORT = ("e2e/test_faults.py",)
"""Of those: one real query per mode and kind of kill, in one session."""


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.path.relative_to(ROOT / "tests").as_posix()
        if name.startswith(LONG) and name not in SHORT:
            item.add_marker(pytest.mark.long)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_RanNothing())
