"""Build hook: compiles the Spark plugin and puts its jar into the wheel.

The Java sources are compiled against the jars that PySpark ships, so a JDK is the only thing needed beyond pip.
Spark's connector for Kafka is fetched and put beside it, where it can be had; the build does not fail without.
The jar is written into the source tree (`clonos/jars`, not under version control), where an editable install
finds it as well. It names the content it was made from and is made again only when that changes; the same
sources give the same bytes. `python hatch_build.py` does this step alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from clonos.connector_jars import FETCH, FetchFailure, fetch_kafka_jars  # noqa: E402
from clonos.environment import (  # noqa: E402
    JAR_NAME,
    JAVA_MINIMUM,
    SPARK_RELEASE,
    find_java,
    java_install_command,
    spark_jars,
)

ORIGIN = "META-INF/clonos-sources"
MANIFEST = "Manifest-Version: 1.0\r\nImplementation-Title: Clonos for Spark\r\n\r\n"
OPTIONS = (
    "--release",
    str(JAVA_MINIMUM),
    "-g",
    "-encoding",
    "UTF-8",
    "-Xlint:all,-classfile,-path,-processing,-serial",
    "-proc:none",
)


class BuildFailure(Exception):
    """The jar cannot be built; the message says why and what to do."""


class CustomBuildHook(BuildHookInterface):
    """Called by hatchling for wheels, editable installs and source distributions alike."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            jar = build_jar(ROOT)
        except BuildFailure as failure:
            self.app.abort(f"clonos-spark: {failure}")
        build_data["artifacts"].append(jar.relative_to(ROOT).as_posix())
        connector = fetch_connector(jar, self.app.display_warning)
        build_data["artifacts"] += [path.relative_to(ROOT).as_posix() for path in connector]


def build_jar(root: Path) -> Path:
    """Bring the jar of the source tree `root` up to date and return its path."""
    jar = root / "clonos" / "jars" / JAR_NAME
    main = root / "spark_plugin" / "src" / "main"
    sources = sorted(path for path in (main / "java").rglob("*.java"))
    resources = sorted(path for path in (main / "resources").rglob("*") if path.is_file())
    if not sources:
        raise BuildFailure(f"no Java sources under {main / 'java'}")
    origin = digest(main, sources + resources)
    if made_from(jar) == origin:
        return jar
    with tempfile.TemporaryDirectory(prefix="clonos-javac-") as classes:
        compile_java(sources, Path(classes))
        entries = {path.relative_to(classes).as_posix(): path for path in Path(classes).rglob("*.class")}
        entries |= {path.relative_to(main / "resources").as_posix(): path for path in resources}
        write_jar(jar, origin, entries)
    return jar


def digest(base: Path, files: list[Path]) -> str:
    """One hash over the names and contents of the files, the compiler options and the Spark release."""
    total = hashlib.sha256(f"{OPTIONS} {SPARK_RELEASE}".encode())
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(base).as_posix()} {content}\n".encode())
    return total.hexdigest()


def made_from(jar: Path) -> str | None:
    """The hash that the jar was made from, or None where there is no readable jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            return archive.read(ORIGIN).decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None


def fetch_connector(plugin: Path, warn: Callable[[str], object]) -> list[Path]:
    """Spark's connector for Kafka, beside the plugin's jar; where it cannot be had, nothing, and why."""
    try:
        return fetch_kafka_jars(find_java("java") or Path("java"), plugin)
    except FetchFailure as failure:
        warn(f"clonos-spark: without Spark's connector for Kafka ({FETCH} mends it): {failure}")
        return []


def compile_java(sources: list[Path], classes: Path) -> None:
    """Compile all sources in one run of javac."""
    javac = find_java("javac")
    if javac is None:
        raise BuildFailure(
            f"no Java compiler (JDK {JAVA_MINIMUM} or newer) found. Install one, then run this again:\n"
            f"    {java_install_command()}"
        )
    command = [javac, *OPTIONS, "-cp", f"{required_spark_jars()}/*", "-d", classes, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailure(f"{javac} refused the plugin's sources:\n{done.stdout}{done.stderr}")
    sys.stderr.write(done.stdout + done.stderr)


def required_spark_jars() -> Path:
    """The directory of jars inside the installed PySpark."""
    jars = spark_jars()
    if jars is None:
        raise BuildFailure(
            f"PySpark {SPARK_RELEASE} is needed to compile the plugin; run: pip install pyspark"
        )
    return jars


def write_jar(jar: Path, origin: str, entries: dict[str, Path]) -> None:
    """Write a jar whose bytes depend on the entries alone, and put it in place in one step."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    contents = {"META-INF/MANIFEST.MF": MANIFEST.encode(), ORIGIN: origin.encode()}
    contents |= {name: path.read_bytes() for name, path in sorted(entries.items())}
    unfinished = jar.with_suffix(f".{os.getpid()}.unfinished")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        unfinished.replace(jar)
    finally:
        unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        built = build_jar(ROOT)
    except BuildFailure as failure:
        sys.exit(f"clonos-spark: {failure}")
    fetch_connector(built, lambda text: sys.stderr.write(f"{text}\n"))
