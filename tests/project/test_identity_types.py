"""Numbers that say where something is have a type of their own: what is an epoch is annotated `Epoch`, not `int`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# By type of `clonos.protocol.ids`, the names that say one and nothing else.
NAMES = {
    "Epoch": frozenset("epoch before_epoch".split()),
    "LogOffset": frozenset(
        """log_offset log_start log_end log_since epoch_log_offset from_offset snapshot_offset own_start known_upto
        ends_at whole_since live_since recovered_end truncation_points""".split()
    ),
    "OutputNumber": frozenset(
        "emitted emitted_output output_number_floor snapshot_output suppressed_upto".split()
    ),
}
TYPE_OF = {name: kind for kind, names in NAMES.items() for name in names}

# "path:name", with the reason beside it.
EXCEPTIONS = frozenset(
    {
        "clonos/errors.py:epoch",  # imports nothing of the project: whatever raises an error may import it
        "clonos/testing/faults.py:epoch",  # the same, and users write down epochs there as numbers
        "clonos/api/query.py:epoch",  # users ask for an epoch by its number
        "clonos/sim/plan.py:epoch",  # how many records an epoch has
    }
)


def annotated(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Parameters, fields and variables, and what functions return, each with its annotation."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                yield name, annotation
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                yield name, annotation
            case ast.FunctionDef(name=name, returns=ast.expr() as annotation):
                yield name, annotation


def untyped(source: str) -> list[tuple[str, int]]:
    """Names that are annotated `int`, alone or in a union or a container, and the lines where."""
    return [
        (name, annotation.lineno)
        for name, annotation in annotated(ast.parse(source))
        if name.lstrip("_") in TYPE_OF
        and any(isinstance(part, ast.Name) and part.id == "int" for part in ast.walk(annotation))
    ]


def sources(root: Path) -> Iterator[Path]:
    for folder in ("clonos", "standby"):
        yield from (path for path in sorted((root / folder).rglob("*.py")) if "_gen" not in path.parts)


def test_identities_have_their_types(root: Path) -> None:
    found = {
        f"{path.relative_to(root).as_posix()}:{name}": (line, TYPE_OF[name.lstrip("_")])
        for path in sources(root)
        for name, line in untyped(path.read_text("utf-8"))
    }
    complaints = [
        f"{place} (line {line}) is annotated int; it is a {kind} (clonos.protocol.ids)"
        for place, (line, kind) in found.items()
        if place not in EXCEPTIONS
    ]
    assert not complaints, "\n" + "\n".join(complaints)
    assert not EXCEPTIONS - found.keys(), "exceptions that are not needed any more"


@pytest.mark.parametrize(
    "source",
    [
        "def f(epoch: int) -> None: ...",
        "def f(*, epoch: int | None = None) -> None: ...",
        "class C:\n    epoch: int = 0",
        "class C:\n    def epoch(self) -> int: ...",
        "self._epoch: int = 0",
        "def f(truncation_points: Mapping[Origin, int]) -> None: ...",
        "class C:\n    log_end: int | None",
    ],
)
def test_the_check_finds(source: str) -> None:
    assert untyped(source)


def test_the_check_allows() -> None:
    assert not untyped("def f(epoch: Epoch, epoch_watermark: int) -> int: ...")
