"""What this library needs from the machine: a Java runtime, a Spark release it runs in, the plugin's jar.

Pure look-ups; nothing is started or changed but `java -version` runs. The build hook uses the same look-up for
the compiler, so what it imports is the standard library and two small modules of our own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.extras import needs

JAVA_MINIMUM = 17
SPARK_RELEASE = "4.3"  # the plugin is compiled against it
# In these the same jar runs in micro-batch mode: Spark's exchange of Real-Time Mode begins with 4.3.
MICROBATCH_RELEASES = ("4.1", "4.2")
JAR_NAME = "clonos-spark-plugin.jar"
_INSTALL = f"pip install 'pyspark=={SPARK_RELEASE}.*'"

# Where package managers put a JDK without putting it on the PATH.
_USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)


def module_path() -> list[str]:
    """Where this process finds modules: functions are pickled by their names, so a process that is to load them looks
    there, too."""
    entries = [entry or os.getcwd() for entry in sys.path]
    return list(dict.fromkeys(os.path.abspath(entry) for entry in entries if os.path.exists(entry)))


def repeating_environment() -> dict[str, str]:
    """Of a process that runs users' functions again, as replicas did: with their hash seed, and the modules of this
    process and of the working directory."""
    path = dict.fromkeys([os.getcwd(), *module_path()])
    return {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(path)}


def jar_path() -> Path:
    """The Spark plugin's jar. Raises ConfigurationError where this installation has none."""
    path = Path(__file__).parent / "jars" / JAR_NAME
    if not path.is_file():
        raise ConfigurationError(
            f"the Spark plugin's jar is missing: {path}",
            hint="Install the package again (in a source tree: `make jar`), which compiles it",
        )
    return path


def java_home() -> Path:
    """The home of a Java that Spark can use: `JAVA_HOME` where it is set, else the first one found.

    Raises ConfigurationError where there is none, or where `JAVA_HOME` names one that is too old.
    """
    if home := os.environ.get("JAVA_HOME"):
        release = java_release(Path(home, "bin", "java"))
        if release is None or release < JAVA_MINIMUM:
            found = "no working Java" if release is None else f"Java {release}"
            raise ConfigurationError(
                f"JAVA_HOME={home} has {found}; Java {JAVA_MINIMUM} or newer is needed",
                hint=f"Correct or unset JAVA_HOME, or install a JDK: {java_install_command()}",
            )
        return Path(home)
    java = find_java("java")
    if java is None:
        raise ConfigurationError(
            f"no Java {JAVA_MINIMUM} or newer found", hint=f"Install one: {java_install_command()}"
        )
    return java.resolve().parent.parent


def spark_finds_java() -> bool:
    """Whether Spark, which looks at JAVA_HOME and then at the PATH, would start a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    return (java_release(program) or 0) >= JAVA_MINIMUM


def find_java(program: str) -> Path | None:
    """The first `java` or `javac` of release 17 or newer: JAVA_HOME, then the PATH, then the usual places."""
    for path in _places(program):
        release = java_release(path)
        if release is not None and release >= JAVA_MINIMUM:
            return path
    return None


def java_release(program: Path) -> int | None:
    """The major release that a `java` or `javac` reports, or None where it does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'(?:version "|javac )(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else None


def java_install_command() -> str:
    """The one command that installs a JDK here."""
    if sys.platform == "darwin":
        return f"brew install openjdk@{JAVA_MINIMUM}"
    apt = "apt-get install -y openjdk-{}-jdk-headless"  # which of the two exists depends on the distribution
    for manager, command in (
        ("apt-get", f"apt-get update && ({apt.format(21)} || {apt.format(17)})"),
        ("dnf", "dnf install -y java-latest-openjdk-devel"),
        ("apk", f"apk add openjdk{JAVA_MINIMUM}-jdk"),
    ):
        if shutil.which(manager):
            return command if os.geteuid() == 0 else f"sudo sh -c '{command}'"
    return f"conda install -c conda-forge 'openjdk>={JAVA_MINIMUM}'"


def check_spark_version() -> str:
    """The installed PySpark's version. Raises ConfigurationError unless a causal query runs in that release."""
    needs("pyspark", "a query")
    version = _pyspark_version()
    if spark_release() not in (SPARK_RELEASE, *MICROBATCH_RELEASES):
        raise ConfigurationError(
            f"PySpark {version} is installed; this library works with Spark {SPARK_RELEASE}, and in micro-batch mode "
            f"with {' and '.join(MICROBATCH_RELEASES)}",
            hint=f"Run: {_INSTALL}",
        )
    return version


def check_real_time() -> None:
    """Raises ConfigurationError unless the installed PySpark has Real-Time Mode with exchanges."""
    version = check_spark_version()
    if spark_release() != SPARK_RELEASE:
        raise ConfigurationError(
            f"a query in real time takes Spark {SPARK_RELEASE}, and PySpark {version} is installed, whose Real-Time "
            "Mode has no exchanges",
            hint=f"Give trigger(processingTime='1 second'), or run: {_INSTALL}",
        )


def spark_release() -> str | None:
    """The release of the installed PySpark, 4.3 for 4.3.1, or None where there is no PySpark."""
    return None if find_spec("pyspark") is None else ".".join(_pyspark_version().split(".")[:2])


def spark_jars() -> Path | None:
    """The folder of jars inside the installed PySpark, or None where there is no PySpark."""
    spec = find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"


def _pyspark_version() -> str:
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:  # the platform's own, on the path without having been installed
        return str(import_module("pyspark").__version__)


def _places(program: str) -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", program)
    if on_path := shutil.which(program):
        yield Path(on_path)
    for pattern in _USUAL_HOMES:
        yield from sorted(Path("/").glob(f"{pattern.lstrip('/')}/bin/{program}"))
