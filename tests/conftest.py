"""What all tests share."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import java_class_archive
import kafka_broker
import mysql_server
import one_session
import postgres_server
import pytest
import redis_server
from hypothesis import settings
from kafka_broker import KafkaBroker
from mysql_server import MysqlServer
from postgres_server import PostgresServer
from redis_server import RedisServer
from s3_server import S3Server, s3_server

# How long an example takes says something about the machine.
settings.register_profile("clonos", deadline=None)
settings.load_profile("clonos")

# Hundreds of processes are started, each of which would compile all modules anew: a third of a server's start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{java_class_archive.SHORT_LIVED} {java_class_archive.options()}")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", java_class_archive.SHORT_LIVED)

ROOT = Path(__file__).resolve().parent.parent

LONG = (
    "e2e",
    "sim/test_sim_alone.py",
    "sim/test_sim_kept.py",
    "sim/test_sim_many_seeds.py",
    "sim/test_sim_planted.py",
    "sinks/test_sink_crash.py",
    "spark/",
    "spark_plugin/test_executor_services.py",
    "standby/test_standby_launcher.py",
    "standby/test_standby_service.py",
    "testing/test_testing_docs.py",
    "tools/test_attached_editor.py",
    "tools/test_demo.py",
    "tools/test_inject.py",
)
"""What `make test` leaves to `make check`: whole queries under every circumstance, every planted bug."""
SHORT = (
    "e2e/test_faults.py",
    "spark/test_spark_docs.py",
    "spark/test_spark_recovery_mixes.py",
    "spark/test_spark_refusals.py",
    "spark/test_spark_routing.py",
    "spark/test_spark_types.py",
)
"""Of those `make test` runs one real query per mode and kind of kill, and what every query goes through."""

LARGEST_FIRST = ("e2e", "sim", "tools/test_demo.py", "spark", "tools", "spark_plugin", "standby", "sinks")
"""The order of the folders, the rest behind them. `make test` deals files out to several processes one by one: what
takes long goes first, so that the processes end together, and what shares a Spark session follows one another."""


@pytest.fixture(scope="session")
def brokers() -> Callable[..., contextlib.AbstractContextManager[KafkaBroker]]:
    """Starts a real Kafka broker for one test, which may kill it."""
    reason = kafka_broker.why_not()
    if reason:
        pytest.skip(reason)
    return kafka_broker.kafka_broker


@pytest.fixture(scope="session")
def broker(brokers: Callable[..., contextlib.AbstractContextManager[KafkaBroker]]) -> Iterator[KafkaBroker]:
    """A real Kafka broker for all tests, which no test kills."""
    with brokers() as running:
        yield running


@pytest.fixture(scope="session")
def redis_servers() -> Callable[..., contextlib.AbstractContextManager[RedisServer]]:
    """Starts a real Redis server for one test, which may kill it or set it up in another way."""
    return redis_server.redis_server


@pytest.fixture(scope="session")
def redis_of() -> Iterator[Callable[..., RedisServer]]:
    """Gives a Redis server of a version for all tests, which no test kills."""
    running: dict[str, RedisServer] = {}
    with contextlib.ExitStack() as stack:

        def server_of(version: str = redis_server.NEW) -> RedisServer:
            if version not in running:
                running[version] = stack.enter_context(redis_server.redis_server(version))
            return running[version]

        yield server_of


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL server for the tests of a module; a test that stops it starts it again."""
    reason = postgres_server.why_not()
    if reason:
        pytest.skip(reason)
    with postgres_server.postgres_server() as running:
        yield running


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server for all tests; a test that stops it starts it again."""
    with s3_server() as running:
        yield running


@pytest.fixture(scope="session")
def mysql() -> Iterator[MysqlServer]:
    """A real server of MySQL or MariaDB; a test that kills it starts it again."""
    reason = mysql_server.why_not()
    if reason:
        pytest.skip(reason)
    with mysql_server.mysql_server() as running:
        yield running


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


@pytest.fixture(scope="session", autouse=True)
def spark_is_stopped() -> Iterator[None]:
    """Test files leave their Spark session to the next one; the last one has no next."""
    yield
    one_session.stop()


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share",
        type=_share,
        default=(0, 1),
        metavar="NUMBER/OF",
        help="of the long tests run one of so many shares, by their names: 0/8 is the first eighth. A large number is "
        "taken modulo OF, so the hash of a commit will do",
    )


def _share(said: str) -> tuple[int, int]:
    number, of = said.split("/")
    return int(number, 16) % int(of), int(of)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, of = config.getoption("--share")
    left_out: set[pytest.Item] = set()
    for item in items:
        name = _file_of(item)
        if name.startswith(LONG) and name not in SHORT:
            item.add_marker(pytest.mark.long)
            if zlib.crc32(item.nodeid.encode()) % of != number:
                left_out.add(item)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_turn)


def _file_of(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT / "tests").as_posix()


def _turn(item: pytest.Item) -> int:
    name = _file_of(item)
    found = (
        turn for turn, first in enumerate(LARGEST_FIRST) if name == first or name.startswith(f"{first}/")
    )
    return next(found, len(LARGEST_FIRST))


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what goes to the background so, and tests interrupt programs that would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(_RanNothing())
