"""The build: what the wheel carries, when the plugin is compiled, what is said where that is impossible."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

JAR = "clonos/jars/clonos-spark-plugin.jar"
HELLO = """package org.clonos;
public class Hello { public static int hello(org.apache.spark.sql.Row row) { return row.length(); } }
"""


@pytest.fixture
def hook(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook as a module."""
    pytest.importorskip("hatchling")
    monkeypatch.setattr(sys, "path", sys.path[:])
    spec = importlib.util.spec_from_file_location("hatch_build", root / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with one small class in it."""
    for name, text in (("java/org/clonos/Hello.java", HELLO), ("resources/META-INF/services/x", "y\n")):
        path = tmp_path / "spark_plugin/src/main" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


def test_the_jar_holds_classes_and_resources_and_is_made_alike_twice(hook: ModuleType, tree: Path) -> None:
    jar = hook.build_jar(tree)
    assert jar == tree / JAR
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
    assert names == ["META-INF/MANIFEST.MF", hook.ORIGIN, "META-INF/services/x", "org/clonos/Hello.class"]
    first = jar.read_bytes()
    jar.unlink()
    assert hook.build_jar(tree).read_bytes() == first
    assert [path.name for path in jar.parent.iterdir()] == [jar.name]


def test_the_compiler_runs_only_when_something_changed(
    hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    def compile_java(sources: list[Path], classes: Path) -> None:
        runs.append(len(sources))

    monkeypatch.setattr(hook, "compile_java", compile_java)
    hook.build_jar(tree)
    hook.build_jar(tree)
    assert runs == [1]
    source = tree / "spark_plugin/src/main/java/org/clonos/Hello.java"
    source.write_text(HELLO.replace("hello", "hallo"))
    hook.build_jar(tree)
    assert runs == [1, 1]
    source.rename(source.with_name("Other.java"))
    hook.build_jar(tree)
    assert runs == [1, 1, 1]
    (tree / JAR).write_bytes(b"no jar")
    hook.build_jar(tree)
    assert runs == [1, 1, 1, 1]


def test_a_source_that_does_not_compile_leaves_the_old_jar(hook: ModuleType, tree: Path) -> None:
    before = hook.build_jar(tree).read_bytes()
    (tree / "spark_plugin/src/main/java/org/clonos/Hello.java").write_text("class Hello { int x = ; }")
    with pytest.raises(hook.BuildFailure, match="illegal start of expression"):
        hook.build_jar(tree)
    assert (tree / JAR).read_bytes() == before


def test_without_a_compiler_the_build_names_one_command(
    hook: ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "find_java", lambda program: None)
    with pytest.raises(hook.BuildFailure, match="no Java compiler") as failure:
        hook.build_jar(tree)
    assert str(failure.value).endswith(f"\n    {hook.java_install_command()}")


def test_a_tree_without_sources_is_refused(hook: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(hook.BuildFailure, match="no Java sources"):
        hook.build_jar(tmp_path)


@pytest.mark.usefixtures("hook")
def test_the_wheel_carries_both_packages_and_the_jar(root: Path, tmp_path: Path, plugin_jar: Path) -> None:
    program = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert archive.read(JAR) == plugin_jar.read_bytes()
    sources = {
        path.relative_to(folder.parent).as_posix()
        for folder in (root / "clonos", root / "standby" / "clonos_standby")
        for path in folder.rglob("*.py")
    }
    assert sources <= names
    assert {"clonos/py.typed", "clonos_standby/py.typed"} <= names
    page = root / "clonos" / "tools" / "serve" / "static"
    assert {path.relative_to(root).as_posix() for path in page.iterdir()} <= names
    assert not {name for name in names if name.startswith(("tests/", "spark_plugin/", "benchmarks/"))}
