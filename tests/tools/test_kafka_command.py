"""Spark's connector for Kafka: what is said where it is missing, and how it is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos import cli, connector_jars
from clonos.connector_jars import KAFKA_JARS, kafka_jars
from clonos.errors import ConfigurationError
from clonos.tools import doctor

SETTINGS = """<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="file://{root}/"/></resolvers>
</ivysettings>
"""
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId><version>{jar.version}</version>
</project>
"""


def repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder, of the jars that this installation has, as the Ivy settings say that the environment names."""
    for jar in KAFKA_JARS:
        place = folder / jar.group.replace(".", "/") / jar.artifact / jar.version
        place.mkdir(parents=True)
        content = (connector_jars.FOLDER / jar.name).read_bytes()
        (place / jar.name).write_bytes(content)
        (place / jar.name.replace(".jar", ".pom")).write_text(POM.format(jar=jar))
    settings = folder / "settings.xml"
    settings.write_text(SETTINGS.format(root=folder))
    monkeypatch.setenv("CLONOS_IVY_SETTINGS", str(settings))


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation without the connector, and a repository that has it."""
    try:
        kafka_jars()
    except ConfigurationError as error:
        pytest.skip(error.message)
    repository(tmp_path / "repository", monkeypatch)
    monkeypatch.setattr(connector_jars, "FOLDER", tmp_path / "kafka")
    return tmp_path / "kafka"


def test_a_missing_connector_is_fetched_as_the_hint_says(
    empty: Path, plugin_jar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match=r"is not in this installation") as refused:
        kafka_jars()
    assert f"`{connector_jars.FETCH}`" in (refused.value.hint or "")
    assert cli.main(connector_jars.FETCH.split()[1:]) == 0
    assert capsys.readouterr().out.split() == [str(path) for path in kafka_jars()]
    kafka_jars()[0].write_bytes(b"damaged")
    with pytest.raises(ConfigurationError, match=r"missing or damaged"):
        kafka_jars()
    assert cli.main(["kafka", "fetch"]) == 0
    kafka_jars()


def test_a_release_that_does_not_run_the_connector_is_told_which_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connector_jars, "spark_release", lambda: "4.1")
    with pytest.raises(
        ConfigurationError, match=r"4\.1 does not run .*=org\.apache\.spark:spark-sql-kafka.*:4\.1\."
    ):
        kafka_jars()
    finding = doctor.check_kafka()
    assert finding.verdict is doctor.Verdict.WARN and "spark.jars.packages=" in finding.remedy


def test_a_jar_with_another_checksum_is_refused(
    empty: Path,
    plugin_jar: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [place] = (tmp_path / "repository").rglob("commons-pool2-*.jar")
    place.write_bytes(b"no jar")
    assert cli.main(["kafka", "fetch"]) == 1
    assert "commons-pool2:2.13.1 has another checksum" in capsys.readouterr().err


def test_where_no_repository_has_it_the_error_says_what_to_do(
    empty: Path, plugin_jar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [place] = (tmp_path / "repository").rglob("kafka-clients-*.jar")
    place.unlink()
    assert cli.main(["kafka", "fetch"]) == 1
    said = capsys.readouterr().err
    assert "kafka-clients" in said
    assert "CLONOS_IVY_SETTINGS" in said
