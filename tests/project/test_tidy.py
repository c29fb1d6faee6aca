"""The size of things, and a few words that have no place in the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clonos.cli import COMMANDS

FILE_LINES = 700
FUNCTION_LINES = 70
FOLDERS = (
    "clonos",
    "standby",
    "proto",
    "spark_plugin",
    "tests",
    "benchmarks",
    "examples",
    "scripts",
    "docs",
    ".ci",
)
SUFFIXES = {".py", ".java", ".proto", ".md", ".toml", ".sh", ".scala", ".sql", ".yml", ".yaml", ""}
GENERATED = {"_gen", "__pycache__", "target", "build", "jars"}

# Exceptions, each as "path" or "path:function", with the reason beside it. Empty is the aim.
LONG_FILES: frozenset[str] = frozenset()
LONG_FUNCTIONS: frozenset[str] = frozenset()

# Who may print: the command and what it runs; besides them, the `main` of a module that is a program too.
PRINTERS = ("clonos.cli", "clonos.tools.demo", *(command.module for command in COMMANDS))

# Spelt in halves, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b|(?:#|//|\*)\s*X" + r"XX\b")
MACHINE_PATH = re.compile(r"(?<![\w.~/$}-])/(?:home|Users|root|work|tmp/w)/[\w.]")
REGISTRY = re.compile(
    r"\b(?:"
    + "|".join((r"py" + r"pi\.org", r"pythonhosted\." + "org", r"maven\." + r"org", r"repo1\." + "maven"))
    + ")"
)
# A newcomer cannot tell which process, instance or person such a word means. A word in quotes may be a name.
RIDDLE = re.compile(
    r"(?<![\"'])\b(?:"
    + "|".join(
        ("who" + "ever", "who" + "mever", "some" + "body", "no" + "body", "any" + "body", "every" + "body")
    )
    + r")\b(?![\"'])",
    re.IGNORECASE,
)

Complaints = Iterator[tuple[int, str]]


def files(root: Path) -> list[Path]:
    """Everything people wrote: the files of the project's folders and those beside them."""
    found = [path for path in root.iterdir() if path.is_file() and not path.name.startswith(".")]
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in found
        if path.suffix in SUFFIXES
        and not GENERATED & set(path.relative_to(root).parts)
        and path.name != "LICENSE"
    )


def long_file(path: str, text: str) -> Complaints:
    lines = text.count("\n") + 1
    if path.endswith((".py", ".java")) and lines > FILE_LINES and path not in LONG_FILES:
        yield 1, f"has {lines} lines; {FILE_LINES} are enough for one concept: split it"


def long_function(path: str, text: str) -> Complaints:
    for node in ast.walk(ast.parse(text)) if path.endswith(".py") else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES and f"{path}:{node.name}" not in LONG_FUNCTIONS:
                yield (
                    node.lineno,
                    f"function {node.name} has {lines} lines; {FUNCTION_LINES} are enough: split it",
                )


def no_docstring(path: str, text: str) -> Complaints:
    if path.endswith(".py") and text.strip() and ast.get_docstring(ast.parse(text)) is None:
        yield 1, "has no docstring: say what the module is for"


def unfinished(path: str, text: str) -> Complaints:
    yield from matches(UNFINISHED, text, "marks unfinished work: {}")


def machine_path(path: str, text: str) -> Complaints:
    yield from matches(MACHINE_PATH, text, "names a path of one machine: {}")


def registry_host(path: str, text: str) -> Complaints:
    yield from matches(REGISTRY, text, "names a package registry: {}; leave that to the user's settings")


def riddle(path: str, text: str) -> Complaints:
    yield from matches(RIDDLE, text, "says {}: name the instance, process, role or person that is meant")


def library_print(path: str, text: str) -> Complaints:
    module = path.removesuffix(".py").removeprefix("standby/").replace("/", ".")
    if not path.startswith(("clonos/", "standby/")) or not path.endswith(".py"):
        return
    if any(module == printer or module.startswith(f"{printer}.") for printer in PRINTERS):
        return
    tree = ast.parse(text)
    mains = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    for node in set(ast.walk(tree)) - {node for main in mains for node in ast.walk(main)}:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno, "prints; a library logs, raises or returns"


def matches(pattern: re.Pattern[str], text: str, complaint: str) -> Complaints:
    for number, line in enumerate(text.splitlines(), 1):
        if found := pattern.search(line):
            yield number, complaint.format(found[0])


RULES: tuple[Callable[[str, str], Complaints], ...] = (
    long_file,
    long_function,
    no_docstring,
    unfinished,
    machine_path,
    registry_host,
    riddle,
    library_print,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_sources_are_tidy(root: Path, rule: Callable[[str, str], Complaints]) -> None:
    found = [
        f"{name}:{line}: {complaint}"
        for path in files(root)
        for name in [path.relative_to(root).as_posix()]
        for line, complaint in rule(name, path.read_text("utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_exceptions_are_still_needed(root: Path) -> None:
    for exception in LONG_FILES | LONG_FUNCTIONS:
        assert (root / exception.split(":")[0]).is_file(), f"{exception} is gone; drop the exception"


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (long_file, "clonos/a.py", "\n" * FILE_LINES),
        (long_function, "clonos/a.py", "def f():\n" + "    pass\n" * FUNCTION_LINES),
        (no_docstring, "clonos/a.py", "x = 1\n"),
        (unfinished, "docs/a.md", "TO" + "DO: later"),
        (machine_path, "docs/a.md", "see /ho" + "me/jane/file"),
        (registry_host, "Makefile", "https://py" + "pi.org/simple"),
        (riddle, "docs/a.md", "No" + "body asks for it."),
        (library_print, "clonos/protocol/a.py", "print(1)"),
    ],
)
def test_the_rule_finds(rule: Callable[[str, str], Complaints], path: str, text: str) -> None:
    assert list(rule(path, text))


def test_commands_and_programs_may_print() -> None:
    assert not list(library_print("clonos/tools/doctor.py", "print(1)"))
    assert not list(library_print("clonos/protocol/a.py", "def main():\n    print(1)"))
