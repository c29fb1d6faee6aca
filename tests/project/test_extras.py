"""Packages that a platform may bring, or a user need not have: what runs without them, and what is said where one is
needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from clonos.extras import EXTRAS

Run = Callable[..., "subprocess.CompletedProcess[str]"]

BLOCKER = """
import os, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] in os.environ["BLOCKED"].split()
        return None if hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""

IMPORT_ALL = """
import importlib, pkgutil
import clonos, clonos.testing, clonos_standby

for package in (clonos, clonos_standby):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            print(found.name, error.name)
"""

REPLICA = """
from pathlib import Path
from standby_conduit import SPEC, Conduit
from clonos_standby.cluster.launcher import ReplicaServer

with ReplicaServer(SPEC, Path(DATA), entry="standby_replica:main", determinants=False) as server:
    with Conduit(server).welcome() as conduit:
        assert conduit.ask("pid")
print("served")
"""


@pytest.fixture
def without(root: Path, tmp_path: Path) -> Run:
    """Runs a program where packages cannot be imported, in no process that it starts either."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKER)
    folders = [tmp_path / "site", root, root / "standby", root / "tests" / "helpers"]

    def run(*packages: str, program: str) -> subprocess.CompletedProcess[str]:
        surroundings = {
            **os.environ,
            "BLOCKED": " ".join(packages),
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
        }
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)

    return run


def test_every_module_but_those_of_some_sinks_and_stores_and_the_flights_can_be_imported_without_any(
    without: Run,
) -> None:
    done = without(*EXTRAS, "py4j", program=IMPORT_ALL)
    assert done.returncode == 0, done.stderr
    failed = dict(line.split() for line in done.stdout.splitlines())
    allowed = (
        "clonos.sinks.sql_",
        "clonos.sinks.kafka_",
        "clonos.sinks.redis_",
        "clonos.sinks.delta_",
        "clonos.storage.object_conditions",
        "clonos.storage.event_tables",
        "clonos.storage.object_prefix",
        "clonos.sinks.iceberg_",
        "clonos.sinks.object_",
        "clonos.kafka.reader",
        "clonos.tools.demo.",
        "clonos.tools.flights.",
    )
    assert {name for name in failed if not name.startswith(allowed)} == set()


def test_a_replica_runs_without_any(without: Run, tmp_path: Path) -> None:
    program = f"DATA = {str(tmp_path / 'data')!r}\n{REPLICA}"
    done = without(*EXTRAS, "py4j", program=program)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr


@pytest.mark.parametrize(
    ("package", "program", "said"),
    [
        ("pyspark", "import clonos; clonos.configure(None)", "[spark]"),
        ("sqlalchemy", "import clonos; clonos.sinks.sql('sqlite:////tmp/a.db', 't')", "[sql]"),
        ("sqlalchemy", "from clonos.sinks import SqlSink", "[sql]"),
        (
            "obstore",
            "from clonos.storage.folder import resolve; resolve('s3a://bucket/checkpoint')",
            "[objects]",
        ),
        ("confluent_kafka", "import clonos; clonos.sinks.kafka('localhost:1', topic='t')", "[kafka]"),
        ("confluent_kafka", "import clonos.kafka; clonos.kafka.Reader({}, ['t'])", "[kafka]"),
        ("redis", "import clonos; clonos.sinks.redis('redis://host', 's')", "[redis]"),
        ("redis", "from clonos.sinks import RedisSink", "[redis]"),
        ("deltalake", "import clonos; clonos.sinks.delta('/tmp/t')", "[delta]"),
        ("deltalake", "from clonos.sinks import DeltaSink", "[delta]"),
        ("obstore", "import clonos; clonos.sinks.parquet('s3://b/p')", "[objects]"),
        ("obstore", "import clonos; clonos.sinks.jsonl('s3://b/p')", "[objects]"),
        ("obstore", "from clonos.sinks import ObjectSink", "[objects]"),
        ("pyiceberg", "import clonos; clonos.sinks.iceberg('a.b')", "[iceberg]"),
        ("pyiceberg", "from clonos.sinks import IcebergSink", "[iceberg]"),
        ("psycopg", "import clonos; clonos.sinks.sql('postgresql://host/db', 't')", "[postgres]"),
        ("pymysql", "import clonos; clonos.sinks.sql('mysql://host/db', 't')", "[mysql]"),
        (
            "openlineage",
            "from clonos.spark.openlineage.consumer import Consumer, client_for; client_for(Consumer())",
            "[openlineage]",
        ),
        ("pandas", "from clonos.cli import main; raise SystemExit(main(['demo']))", "[demo]"),
        ("matplotlib", "from clonos.cli import main; raise SystemExit(main(['demo']))", "[demo]"),
        ("matplotlib", "from clonos.sim.draw import draw; draw(None)", "[demo]"),
        (
            "cryptography",
            "from clonos.storage.archive_keys import read_keys; read_keys('/etc/clonos/archive.key')",
            "[encryption]",
        ),
        (
            "debugpy",
            "from clonos.cli import main; raise SystemExit(main('replay / --row 2-0-1 --debugpy 0'.split()))",
            "[debugpy]",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_extra_that_installs_it(
    without: Run, package: str, program: str, said: str
) -> None:
    done = without(package, program=program)
    assert done.returncode == 1
    assert f"needs {package}, which is not installed" in done.stderr
    assert f'pip install "clonos-spark{said}"' in done.stderr
    assert "ConfigurationError" in done.stderr


def test_every_extra_that_a_message_names_is_there_and_all_holds_the_others(root: Path) -> None:
    said = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = said["optional-dependencies"]
    assert set(EXTRAS.values()) <= extras.keys()
    (whole,) = extras["all"]
    assert set(whole.partition("[")[2].rstrip("]").split(",")) == extras.keys() - {"all", "dev", "docs"}
