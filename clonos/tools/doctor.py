"""`clonos doctor`: does this machine have what a causal query needs, and what would mend it where not."""

from __future__ import annotations

import argparse
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

from clonos import environment
from clonos.connector_jars import kafka_jars
from clonos.errors import ClonosError, ConfigurationError

PYTHON_MINIMUM = (3, 11)
SHARED_MEMORY_WANTED = 256 << 20
SPACE_WANTED = 2 << 30
SPACE_NEEDED = 256 << 20


class Verdict(Enum):
    """`WARN` runs, but not as well as it could; `FAIL` does not run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found, and what to do about it where there is something to do."""

    verdict: Verdict
    detail: str
    remedy: str = ""


def check_python() -> Finding:
    """The interpreter's release."""
    version = platform.python_version()
    if sys.version_info < PYTHON_MINIMUM:
        wanted = ".".join(map(str, PYTHON_MINIMUM))
        return Finding(verdict=Verdict.FAIL, detail=version, remedy=f"use Python {wanted} or newer")
    return Finding(verdict=Verdict.OK, detail=f"{version} ({sys.executable})")


def check_java() -> Finding:
    """A Java of the right release with the modules that Spark's launcher asks for."""
    home = environment.java_home()
    program = home / "bin" / "java"
    release = environment.java_release(program)
    found = f"release {release} ({home})"
    done = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        remedy = f"this is a cut-down runtime; install a JDK: {environment.java_install_command()}"
        return Finding(
            verdict=Verdict.FAIL, detail=f"{found} lacks the module jdk.incubator.vector", remedy=remedy
        )
    if not environment.spark_finds_java():
        remedy = f"export JAVA_HOME={home}"
        return Finding(verdict=Verdict.WARN, detail=f"{found} is not what Spark would start", remedy=remedy)
    return Finding(verdict=Verdict.OK, detail=found)


def check_spark() -> Finding:
    """The PySpark release, and whether it has both modes."""
    version = environment.check_spark_version()
    try:
        environment.check_real_time()
    except ConfigurationError as error:
        return Finding(
            verdict=Verdict.WARN, detail=f"{version}, micro-batch mode alone", remedy=error.hint or ""
        )
    return Finding(verdict=Verdict.OK, detail=version)


def check_jar() -> Finding:
    """The Spark plugin's jar."""
    return Finding(verdict=Verdict.OK, detail=str(environment.jar_path()))


def check_kafka() -> Finding:
    """Spark's connector for Kafka, and the client that a Kafka sink uses."""
    try:
        jars = kafka_jars()
    except ClonosError as error:
        detail = "no connector: a query that reads Kafka needs it, nothing else does"
        return Finding(verdict=Verdict.WARN, detail=detail, remedy=error.hint or "")
    try:
        client = metadata.version("confluent-kafka")
    except metadata.PackageNotFoundError:
        detail = "no client: a sink in Kafka needs it, nothing else does"
        return Finding(verdict=Verdict.WARN, detail=detail, remedy='run: pip install "clonos-spark[kafka]"')
    return Finding(verdict=Verdict.OK, detail=f"{jars[0].name}, confluent-kafka {client}")


def check_pandas() -> Finding:
    """A pandas that this PySpark works with."""
    try:
        version = metadata.version("pandas")
    except metadata.PackageNotFoundError:
        detail = "not installed: applyInPandasWithState and transformWithState need it, nothing else does"
        return Finding(verdict=Verdict.WARN, detail=detail, remedy='run: pip install "clonos-spark[pandas]"')
    if int(version.split(".")[0]) >= 3:
        remedy = "run: pip install 'pandas>=2.2,<3'"
        return Finding(verdict=Verdict.FAIL, detail=f"{version} does not work with PySpark", remedy=remedy)
    return Finding(verdict=Verdict.OK, detail=version)


def check_space() -> Finding:
    """Room for causal logs and keyed state in the temporary directory."""
    directory = tempfile.gettempdir()
    free = shutil.disk_usage(directory).free
    detail = f"{free >> 20:,} MiB free in {directory}"
    if free < SPACE_WANTED:
        verdict = Verdict.FAIL if free < SPACE_NEEDED else Verdict.WARN
        return Finding(
            verdict=verdict, detail=detail, remedy="free some, or set TMPDIR to a larger file system"
        )
    return Finding(verdict=Verdict.OK, detail=detail)


def check_shared_memory() -> Finding:
    """Shared memory, where local logs are quickest."""
    directory = Path("/dev/shm")
    if not directory.is_dir():
        return Finding(verdict=Verdict.OK, detail="none on this system; the temporary directory serves")
    free = shutil.disk_usage(directory).free
    detail = f"{free >> 20:,} MiB free in {directory}"
    if free < SHARED_MEMORY_WANTED:
        return Finding(verdict=Verdict.WARN, detail=detail, remedy="in a container: --shm-size=1g")
    return Finding(verdict=Verdict.OK, detail=detail)


def check_unix_sockets() -> Finding:
    """A Unix socket in the temporary directory: conduits reach their replicas over one."""
    with tempfile.TemporaryDirectory(prefix="clonos-") as directory:
        path = str(Path(directory, "socket"))
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(path)
            server.listen()
            client.connect(path)
    return Finding(verdict=Verdict.OK, detail=f"usable in {tempfile.gettempdir()}")


def check_rocksdb() -> Finding:
    """RocksDB opens, writes and reads."""
    from rocksdict import Options, Rdict

    with tempfile.TemporaryDirectory(prefix="clonos-") as directory:
        database = Rdict(str(Path(directory, "db")), Options(raw_mode=True))
        database[b"key"] = b"value"
        read = database[b"key"]
        database.close()
    if read != b"value":
        return Finding(
            verdict=Verdict.FAIL, detail=f"read {read!r} for b'value'", remedy="install rocksdict again"
        )
    return Finding(verdict=Verdict.OK, detail=f"rocksdict {metadata.version('rocksdict')}")


def check_grpc() -> Finding:
    """gRPC can listen on, and be reached over, the loopback interface."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
    finally:
        server.stop(None).wait()
    return Finding(
        verdict=Verdict.OK, detail=f"grpcio {metadata.version('grpcio')}, reached 127.0.0.1:{port}"
    )


CHECKS: tuple[tuple[str, Callable[[], Finding]], ...] = (
    ("Python", check_python),
    ("Java", check_java),
    ("PySpark", check_spark),
    ("plugin jar", check_jar),
    ("Kafka", check_kafka),
    ("pandas", check_pandas),
    ("disk space", check_space),
    ("shared memory", check_shared_memory),
    ("Unix sockets", check_unix_sockets),
    ("RocksDB", check_rocksdb),
    ("gRPC", check_grpc),
)


def examine(check: Callable[[], Finding]) -> Finding:
    """Run one check; whatever it raises is its finding."""
    try:
        return check()
    except ClonosError as error:
        return Finding(verdict=Verdict.FAIL, detail=error.message, remedy=error.hint or "")
    except Exception as error:
        return Finding(verdict=Verdict.FAIL, detail=f"{type(error).__name__}: {error}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`clonos doctor` takes no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 0 where nothing failed."""
    width = max(len(name) for name, _ in CHECKS)
    failures = 0
    for name, check in CHECKS:
        finding = examine(check)
        failures += finding.verdict is Verdict.FAIL
        print(f"{finding.verdict.value:4}  {name:{width}}  {finding.detail}")
        if finding.remedy:
            print(f"{'':4}  {'':{width}}  -> {finding.remedy}")
    print(f"{failures} of {len(CHECKS)} checks failed" if failures else f"all {len(CHECKS)} checks passed")
    return 1 if failures else 0
