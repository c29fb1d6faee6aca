"""The command `clonos`, its doctor, and what the library says about the machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clonos import cli, environment
from clonos._version import __version__
from clonos.errors import ConfigurationError
from clonos.tools import doctor


def fake_java(directory: Path, program: str, answer: str, code: int = 0) -> Path:
    """A program that answers `-version` as told; returns the Java home it is in."""
    path = directory / "bin" / program
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return directory


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(environment, "_USUAL_HOMES", (f"{tmp_path}/usual/*",))
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "25" 2025-09-16 LTS', 25),
        ('java version "1.8.0_402"', 1),
        ("javac 21.0.2", 21),
        ("something else", None),
    ],
)
def test_java_release(tmp_path: Path, answer: str, release: int | None) -> None:
    assert environment.java_release(fake_java(tmp_path, "java", answer) / "bin" / "java") == release


def test_a_java_that_does_not_run_has_no_release(tmp_path: Path) -> None:
    assert environment.java_release(tmp_path / "none") is None
    assert (
        environment.java_release(fake_java(tmp_path, "java", 'version "17"', code=1) / "bin" / "java") is None
    )


def test_the_usual_places_are_searched_and_old_releases_passed_over(bare: Path) -> None:
    fake_java(bare / "usual" / "jdk-11", "javac", "javac 11.0.2")
    newer = fake_java(bare / "usual" / "jdk-17", "javac", "javac 17.0.2")
    assert environment.find_java("javac") == newer / "bin" / "javac"
    assert environment.find_java("java") is None


def test_no_java_names_the_command_that_installs_one(bare: Path) -> None:
    with pytest.raises(ConfigurationError) as error:
        environment.java_home()
    assert environment.java_install_command() in str(error.value)


def test_a_java_home_that_is_too_old_is_an_error_not_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(bare / "usual" / "jdk-17", "java", 'openjdk version "17.0.1"')
    assert environment.java_home() == bare / "usual" / "jdk-17"
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "java", 'openjdk version "11.0.1"')))
    with pytest.raises(ConfigurationError, match="has Java 11"):
        environment.java_home()


@pytest.mark.parametrize("version", ["4.0.1", "4.4.0", "5.0.0", "4.30.0"])
def test_another_spark_release_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(environment.metadata, "version", lambda name: version)
    for check in (environment.check_spark_version, environment.check_real_time):
        with pytest.raises(ConfigurationError, match=rf"PySpark {version} is installed.*pyspark==4\.3"):
            check()


@pytest.mark.parametrize("version", ["4.1.1", "4.2.0", "4.2.3.dev1"])
def test_an_earlier_release_has_one_mode(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(environment.metadata, "version", lambda name: version)
    assert environment.check_spark_version() == version
    with pytest.raises(
        ConfigurationError, match=rf"takes Spark 4\.3, and PySpark {version} .*processingTime"
    ):
        environment.check_real_time()
    finding = doctor.check_spark()
    assert finding.verdict is doctor.Verdict.WARN
    assert finding.detail.startswith(version) and "pyspark==4.3" in finding.remedy


def test_a_missing_jar_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "JAR_NAME", "another.jar")
    with pytest.raises(ConfigurationError, match=r"another\.jar.*make jar"):
        environment.jar_path()


def test_only_commands_that_are_there_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert (f"\n    {command.name} " in text) == command.exists()


@pytest.mark.parametrize("command", [one for one in cli.COMMANDS if one.exists()], ids=lambda one: one.name)
def test_each_command_explains_itself(command: cli.Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([command.name, "--help"])
    assert stopped.value.code == 0
    assert f"usage: clonos {command.name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["doctor", "--nonsense"], ["doctor", "extra"]])
def test_wrong_usage_is_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert "usage: clonos" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ConfigurationError("broken", hint="Mend it"), 1, "clonos: ConfigurationError: broken. Mend it\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_exit_codes(
    raised: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        raise raised

    monkeypatch.setattr(doctor, "run", run)
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().err == said


def test_the_version_is_printed_by_the_module_too(root: Path) -> None:
    command = [sys.executable, "-m", "clonos.cli", "--version"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == f"clonos {__version__}\n"


def test_the_doctor_finds_this_machine_able(plugin_jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor"])
    table = capsys.readouterr().out
    assert code == 0, table
    assert "all 11 checks passed" in table


def test_the_doctor_goes_on_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> doctor.Finding:
        raise OSError("no such thing")

    def unfit() -> doctor.Finding:
        raise ConfigurationError("unfit", hint="do this")

    def well() -> doctor.Finding:
        return doctor.Finding(verdict=doctor.Verdict.OK, detail="fine")

    monkeypatch.setattr(doctor, "CHECKS", (("one", broken), ("two", unfit), ("three", well)))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAIL  one    OSError: no such thing",
        "FAIL  two    unfit",
        "             -> do this",
        "ok    three  fine",
        "2 of 3 checks failed",
    ]


def test_the_doctor_refuses_pandas_3_and_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "3.0.1")
    assert doctor.check_pandas().verdict is doctor.Verdict.FAIL
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    assert doctor.check_space().verdict is doctor.Verdict.FAIL


def test_the_doctor_tells_a_cut_down_runtime(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(bare / "cut", "java", "") / "bin" / "java"
    java.write_text("#!/bin/sh\n[ $# = 1 ] || exit 1\necho 'openjdk version \"25.0.2\"' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(bare / "cut"))
    finding = doctor.check_java()
    assert finding.verdict is doctor.Verdict.FAIL
    assert "jdk.incubator.vector" in finding.detail
