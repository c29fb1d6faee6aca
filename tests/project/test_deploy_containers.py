"""What stands in deploy/ for containers fits the tree, and the entry point does what Kubernetes asks of it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

DRIVER = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@decide-driver-svc:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "8",
    "SPARK_EXECUTOR_MEMORY": "4g",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "decide-exec-3",
    "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPT_10": "-Dten=a b",
    "SPARK_JAVA_OPT_2": "-Dtwo",
    "SPARK_CLASSPATH": "/opt/spark/extra.jar",
}


@pytest.fixture
def containers(root: Path) -> Path:
    return root / "deploy" / "containers"


def called(containers: Path, folder: Path, environment: dict[str, str], *arguments: str) -> list[str]:
    """The command that the entry point turns into, by programs that write what they are called with."""
    for program in ("spark-submit", "java", "clonos"):
        (folder / program).write_text('#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@"\n')
        (folder / program).chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}", "SPARK_HOME": "/opt/spark"}
    command = [str(containers / "entrypoint.sh"), *arguments]
    done = subprocess.run(
        command, env=path | environment, cwd="/", capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_the_entry_point_starts_a_driver(containers: Path, tmp_path: Path) -> None:
    got = called(containers, tmp_path, DRIVER, "driver", "--properties-file", "/p", "local:///job.py", "a b")
    assert got[:3] == ["spark-submit", "--deploy-mode", "client"]
    assert "spark.driver.bindAddress=10.0.0.7" in got
    assert got[-4:] == ["--properties-file", "/p", "local:///job.py", "a b"]


def test_the_entry_point_starts_an_executor(containers: Path, tmp_path: Path) -> None:
    got = called(containers, tmp_path, EXECUTOR, "executor")
    assert got[:6] == ["java", "-Dspark.driver.port=7078", "-Dtwo", "-Dten=a b", "-Xms4g", "-Xmx4g"]
    assert got[7] == "/opt/spark/extra.jar:/opt/spark/jars/*:/"
    given = dict(zip(got[9::2], got[10::2], strict=True))
    assert given["--hostname"] == "10.0.0.8" and given["--podName"] == "decide-exec-3"
    assert given["--driver-url"] == EXECUTOR["SPARK_DRIVER_URL"] and given["--executor-id"] == "3"


def test_the_entry_point_runs_any_other_command(containers: Path, tmp_path: Path) -> None:
    assert called(containers, tmp_path, {}, "clonos", "doctor", "a b") == ["clonos", "doctor", "a b"]


def test_what_the_image_is_built_from_is_there_and_not_left_out(containers: Path, root: Path) -> None:
    text = (containers / "Dockerfile").read_text()
    sources = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    allowed = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(sources) == sorted(allowed)
    assert all((root / source).exists() for source in sources)


def services(containers: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((containers / "compose.yaml").read_text())["services"])


def test_the_services_run_programs_of_the_tree(containers: Path, root: Path) -> None:
    commands = [service["command"] for service in services(containers).values() if "command" in service]
    programs = [part for command in commands for part in command if part.endswith(".py")]
    assert programs and all((root / program).is_file() for program in programs)


def test_only_this_machine_reaches_the_services(containers: Path) -> None:
    """Nothing in them is protected."""
    ports = [port for service in services(containers).values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_the_description_for_kubernetes_names_what_the_image_has(root: Path) -> None:
    spec = yaml.safe_load((root / "deploy" / "kubernetes" / "spark-application.yaml").read_text())["spec"]
    program = spec["mainApplicationFile"].removeprefix("local:///opt/clonos/")
    assert (root / program).is_file()
    pyproject = (root / "pyproject.toml").read_text()
    assert re.search(rf'"pyspark>={".".join(spec["sparkVersion"].split(".")[:2])},', pyproject)
    shared = {volume["name"] for volume in spec["volumes"]}
    for pod in ("driver", "executor"):
        assert {mount["name"] for mount in spec[pod]["volumeMounts"]} == shared
