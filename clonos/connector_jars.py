"""The jars of Spark's connector for Kafka: which they are, where they are, how they are fetched.

PySpark does not bring them. They are fetched when the package is built, or by `clonos kafka fetch`, from the
repositories that Spark itself would ask, and lie beside the plugin's jar from then on: a session needs no network. Each
is named with its version and checksum.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clonos.environment import spark_jars, spark_release
from clonos.errors import ConfigurationError

FOLDER: Final = Path(__file__).parent / "jars" / "kafka"
FETCH: Final = "clonos kafka fetch"
_FETCHER: Final = "org.clonos.spark.tools.MavenJars"
_PATIENCE_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Jar:
    """An artifact of a Maven repository, and its SHA-256."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


# 4.2.0 is the newest connector that is published where 4.3.0 is not; it runs unchanged on Spark 4.3, in both modes. In
# Spark 4.1 a class that it extends has another constructor.
_OWN_CONNECTOR: Final = ("4.1",)
KAFKA_JARS: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.2.0",
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


class FetchFailure(Exception):
    """A jar could not be fetched; the message says which, and what was answered."""


def kafka_jars() -> list[Path]:
    """The connector's jars.

    Raises ConfigurationError where one is missing or damaged, or does not run in the Spark that is installed.
    """
    folder, release, connector = FOLDER, spark_release(), KAFKA_JARS[0]
    if release in _OWN_CONNECTOR:
        raise ConfigurationError(
            f"Spark {release} does not run the connector for Kafka in this installation, of {connector.version}",
            hint="Leave kafka=True out and name that of your Spark: "
            f"spark.jars.packages={connector.group}:{connector.artifact}:{release}.<patch>",
        )
    for jar in KAFKA_JARS:
        if not has(folder, jar):
            raise ConfigurationError(
                f"Spark's connector for Kafka is not in this installation: {folder / jar.name} is missing or damaged",
                hint=f"Run `{FETCH}` once where there is a network, or leave kafka=True out and name the connector to "
                f"Spark: spark.jars.packages={connector.coordinates}",
            )
    return [folder / jar.name for jar in KAFKA_JARS]


def has(folder: Path, jar: Jar) -> bool:
    """Whether it is there, and is the one that is meant."""
    try:
        return hashlib.sha256((folder / jar.name).read_bytes()).hexdigest() == jar.sha256
    except OSError:
        return False


def fetch_kafka_jars(java: Path, plugin: Path) -> list[Path]:
    """Bring the folder up to date and return what is in it; nothing is asked of a network where all is there.

    `plugin`: its jar, which has the fetcher. Raises FetchFailure.
    """
    folder = FOLDER
    wanted = [jar for jar in KAFKA_JARS if not has(folder, jar)]
    if wanted:
        with tempfile.TemporaryDirectory(prefix="clonos-ivy-") as cache:
            coordinates = [jar.coordinates for jar in wanted]
            fetched = resolve(java, plugin, Path(cache), coordinates, dependencies=False)
            for jar in wanted:
                _put(jar, fetched, folder)
    return [folder / jar.name for jar in KAFKA_JARS]


def resolve(
    java: Path, plugin: Path, cache: Path, coordinates: Sequence[str], *, dependencies: bool
) -> list[Path]:
    """The jars of these coordinates, as Spark finds them for `spark.jars.packages`. Raises FetchFailure.

    Where the environment variable CLONOS_IVY_SETTINGS names a file, it says which repositories are asked, as
    `spark.jars.ivySettings` does.
    """
    settings = os.environ.get("CLONOS_IVY_SETTINGS", "")
    command = [
        str(java),
        "-cp",
        os.pathsep.join([f"{spark_jars()}/*", str(plugin)]),
        _FETCHER,
        str(cache),
        str(dependencies),
        settings,
    ]
    try:
        done = subprocess.run(
            [*command, *coordinates], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FetchFailure(f"{', '.join(coordinates)}: {error}") from error
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.strip()]
        raise FetchFailure(f"{', '.join(coordinates)}: " + "\n".join(told[-12:]))
    return [Path(line) for line in done.stdout.splitlines() if line.endswith(".jar")]


def _put(jar: Jar, fetched: Sequence[Path], folder: Path) -> None:
    found = next((path for path in fetched if path.name == f"{jar.group}_{jar.name}"), None)
    if found is None:
        raise FetchFailure(f"{jar.coordinates} was not among what the repository gave")
    content = found.read_bytes()
    if hashlib.sha256(content).hexdigest() != jar.sha256:
        raise FetchFailure(f"{jar.coordinates} has another checksum than the one that is expected")
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{jar.name}.{os.getpid()}.unfinished"
    unfinished.write_bytes(content)
    unfinished.replace(folder / jar.name)
