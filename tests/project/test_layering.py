"""Who may import whom. The layers stand in docs/architecture; here they are rules, checked on the syntax tree.

An import counts against a foreign package only where it happens when the module is loaded or run: what stands
under `if TYPE_CHECKING` is for the type checker. Imports between the project's own packages always count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PURE = frozenset(
    """__future__ abc array base64 bisect collections contextlib contextvars copy dataclasses datetime decimal enum
    fractions functools hashlib heapq hmac itertools json math numbers operator re string struct textwrap types typing
    unicodedata uuid zlib numpy""".split()
)
OUTSIDE = "pyspark py4j grpc rocksdict sqlalchemy pandas socket threading asyncio time"
HEAVY = frozenset(
    "grpc matplotlib pandas prometheus_client py4j pyarrow pyspark rocksdict sqlalchemy".split()
)
# Calls that reach for the clock, for entropy or for the outside, or whose result differs between processes.
IMPURE_NAMES = frozenset({"open", "print", "input", "exec", "eval", "__import__", "breakpoint", "hash", "id"})
IMPURE_ATTRIBUTES = frozenset(
    """datetime.now datetime.utcnow datetime.today date.today uuid.uuid1 uuid.uuid4 uuid.getnode
    np.random numpy.random np.load np.save np.fromfile np.memmap""".split()
)
IMPURE_FROM = frozenset({"uuid.uuid1", "uuid.uuid4", "uuid.getnode", "numpy.random"})


@dataclass(frozen=True)
class Rule:
    """What the modules of one package may import."""

    own: frozenset[str]  # the project's packages, besides the package itself
    banned: frozenset[str] = frozenset()  # foreign packages, wherever the import stands
    lazy: frozenset[str] = frozenset()  # foreign packages, allowed inside functions alone
    pure: bool = False  # only PURE, and no impure call


def rule(own: str, *, banned: str = "", lazy: str = "", pure: bool = False) -> Rule:
    return Rule(frozenset(own.split()), frozenset(banned.split()), frozenset(lazy.split()), pure)


LOWER = "clonos.errors clonos.json_text clonos.protocol"
SEGMENTS = "clonos.storage.segment_codec clonos.storage.compacted_segments clonos.storage.segment_files"
RUNTIME = (
    f"{LOWER} clonos.values {SEGMENTS} clonos.storage.durable_files clonos.storage.embedded_log "
    "clonos.storage.location clonos.storage.working_folders clonos.storage clonos.wire "
    "clonos.sinks clonos.sources clonos.operators clonos.environment clonos.extras clonos.figures "
    "clonos.async_functions"
)
SPARK = f"{RUNTIME} clonos clonos._version clonos.ending clonos.testing clonos.testing.ledger clonos_standby"
API = f"{SPARK} clonos.spark clonos.archive clonos.api"
TOOLS = f"{API} clonos.tools"

# The most specific prefix of a module's name decides. Modules that stand directly in `clonos` share one rule.
RULES = {
    "clonos.errors": rule("", pure=True),
    "clonos.json_text": rule("", pure=True),
    "clonos._version": rule("", pure=True),
    "clonos.extras": rule("clonos.errors", banned=" ".join(HEAVY)),
    "clonos.protocol": rule("clonos.errors clonos.json_text", pure=True),
    # Values of users as bytes, and what is cached of them: the simulator runs it.
    "clonos.values": rule(LOWER, banned=OUTSIDE),
    "clonos.storage.durable_files": rule("", banned=" ".join(HEAVY)),
    "clonos.storage.working_folders": rule("clonos.errors", banned=" ".join(HEAVY)),
    "clonos.storage.location": rule("clonos.errors", banned=" ".join(HEAVY)),
    "clonos.storage.embedded_log": rule(
        "clonos.errors clonos.json_text clonos.storage.durable_files", banned=" ".join(HEAVY)
    ),
    "clonos.storage.object_answers": rule("", banned=" ".join(HEAVY)),
    "clonos.storage.object_conditions": rule("", banned=" ".join(HEAVY)),
    "clonos.storage.event_tables": rule("clonos.errors", banned="pyspark py4j grpc rocksdict pandas"),
    # The files of an archive's segments, in whatever folder: the simulator runs them over one in memory.
    **{each: rule(f"{LOWER} clonos.values {SEGMENTS}", banned=OUTSIDE) for each in SEGMENTS.split()},
    "clonos.storage": rule(
        f"{LOWER} clonos.values {SEGMENTS} clonos.extras clonos.storage.durable_files clonos.storage.location "
        "clonos.storage.working_folders clonos.storage.event_tables clonos.storage.object_answers "
        "clonos.storage.object_conditions",
        banned="pyspark py4j grpc sqlalchemy pandas",
    ),
    "clonos.wire": rule(LOWER, banned="pyspark py4j rocksdict sqlalchemy pandas"),
    "clonos.sinks": rule(
        f"{LOWER} clonos.extras clonos.async_functions clonos.storage.durable_files "
        "clonos.storage.embedded_log clonos.storage.location "
        "clonos.storage.object_answers clonos.storage.object_conditions",
        banned="pyspark py4j grpc rocksdict",
    ),
    # A consumer needs neither Spark nor what its replicas need.
    "clonos.kafka": rule(
        "clonos.errors clonos.extras clonos.sinks clonos.api",
        banned="grpc rocksdict sqlalchemy pandas pyarrow",
        lazy="pyspark py4j",
    ),
    "clonos.sources": rule(
        f"{LOWER} clonos.storage.embedded_log", banned="grpc rocksdict sqlalchemy", lazy="pyspark py4j"
    ),
    "clonos.operators": rule(
        f"{LOWER} clonos.values clonos.async_functions",
        banned="grpc rocksdict sqlalchemy",
        lazy="pyspark py4j",
    ),
    "clonos.testing.ledger": rule("", pure=True),
    "clonos.testing.driver": rule(f"{API} clonos.testing"),
    "clonos.testing.classification": rule(f"{API} clonos.testing clonos.testing.driver"),
    "clonos.testing.pytest_plugin": rule(f"{SPARK} clonos.spark clonos.archive", banned=" ".join(HEAVY)),
    "clonos.testing.conformance": rule(
        f"{LOWER} clonos.sinks", banned="pyspark py4j grpc rocksdict sqlalchemy pandas"
    ),
    "clonos.testing": rule("clonos.errors clonos.json_text", banned=" ".join(HEAVY)),
    "clonos.sim": rule(
        f"{LOWER} clonos.extras clonos.figures clonos.values clonos.storage.segment_files clonos.testing.ledger",
        banned="pyspark py4j grpc rocksdict socket threading asyncio time",
    ),
    "clonos.async_functions": rule("clonos.errors", banned=" ".join(HEAVY)),
    "clonos.figures": rule(
        "clonos.errors clonos.extras", banned=" ".join(HEAVY - {"matplotlib"}), lazy="matplotlib"
    ),
    "clonos.ending": rule("clonos.storage.working_folders", banned=" ".join(HEAVY)),
    "clonos.environment": rule("clonos.errors clonos.extras", banned=" ".join(HEAVY)),
    "clonos.start": rule("clonos.cli", banned=" ".join(HEAVY)),
    "clonos.cli": rule("clonos.errors clonos.extras clonos.ending clonos._version", banned=" ".join(HEAVY)),
    "clonos_standby": rule(f"{RUNTIME} clonos._version clonos.testing", banned="pyspark py4j sqlalchemy"),
    "clonos.spark": rule(SPARK),
    # Repeats what operators did: with their replicas' own parts, and without Spark.
    "clonos.archive": rule(f"{SPARK} clonos.spark", lazy="pyspark py4j", banned="grpc sqlalchemy"),
    "clonos.api": rule(f"{SPARK} clonos.spark clonos.archive"),
    "clonos": rule(API),
    "clonos.tools": rule(API),
    "clonos.tools.classify": rule(f"{TOOLS} clonos.testing.driver clonos.testing.classification"),
    "clonos.tools.flights": rule(API),
    "clonos.tools.demo": rule(f"{TOOLS} clonos.tools.flights"),
    "clonos.tools.nexmark": rule(API, lazy="pyspark py4j"),
    "clonos.tools.bench": rule(f"{TOOLS} clonos.tools.flights clonos.tools.nexmark"),
}


@dataclass(frozen=True)
class Import:
    """One name that a module imports, and under which circumstances."""

    name: str
    line: int
    typing: bool
    function: bool


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def prefixes(name: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def rule_of(module: str) -> tuple[str, Rule]:
    found = next(prefix for prefix in prefixes(module) if prefix in RULES)
    return found, RULES[found]


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[Import]:
    """Every import of the tree, relative ones made absolute; `from a import b` counts as `a.b`."""

    def visit(node: ast.AST, typing: bool, function: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, typing, function)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[
                    : None if is_package and node.level == 1 else is_package - node.level
                ]
                base = ".".join(filter(None, [*package, base]))
            for alias in node.names:
                yield Import(f"{base}.{alias.name}", node.lineno, typing, function)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.body:
                yield from visit(child, True, function)
            for child in node.orelse:
                yield from visit(child, typing, function)
        else:
            inside = function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for child in ast.iter_child_nodes(node):
                yield from visit(child, typing, inside)

    return visit(tree, False, False)


def complaints(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """What the module does against its rule."""
    tree = ast.parse(source)
    package, its_rule = rule_of(module)
    found = []
    for one in imports(tree, module, is_package):
        top = one.name.split(".")[0]
        if top in ("clonos", "clonos_standby"):
            if rule_of(one.name)[0] not in {package, *its_rule.own}:
                found.append(f"{module}:{one.line} imports {one.name}, which is not below {package}")
        elif one.typing:
            continue
        elif top in its_rule.banned or (top in its_rule.lazy and not one.function):
            how = "only inside functions" if top in its_rule.lazy else "not at all"
            found.append(f"{module}:{one.line} imports {one.name}; {package} may import {top} {how}")
        elif its_rule.pure and (top not in PURE or one.name in IMPURE_FROM):
            found.append(
                f"{module}:{one.line} imports {one.name}; {package} is sans-IO: pass it in as an argument"
            )
    if its_rule.pure:
        found += [f"{module}:{line} uses {name}; {package} is sans-IO" for line, name in impure_uses(tree)]
    return found


def impure_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_NAMES:
            yield node.lineno, node.func.id
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in IMPURE_ATTRIBUTES:
            yield node.lineno, ast.unparse(node)


def test_every_module_keeps_to_its_layer(root: Path) -> None:
    found = [
        complaint
        for folder in (root / "clonos", root / "standby" / "clonos_standby")
        for path in sorted(folder.rglob("*.py"))
        if "_gen" not in path.parts
        for complaint in complaints(
            path.read_text("utf-8"), module_name(path, folder.parent), is_package=path.name == "__init__.py"
        )
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("clonos.protocol.engine.instance", "import time"),
        ("clonos.protocol.engine.instance", "from random import Random"),
        ("clonos.protocol.engine.instance", "def f():\n    import threading"),
        ("clonos.protocol.engine.instance", "from datetime import datetime\nnow = datetime.now()"),
        ("clonos.protocol.engine.instance", "from uuid import uuid4"),
        ("clonos.protocol.engine.instance", "import numpy as np\nx = np.random.default_rng()"),
        ("clonos.protocol.engine.instance", "open('file')"),
        ("clonos.protocol.engine.instance", "from clonos.storage import log_store"),
        ("clonos.protocol.engine.instance", "from ...storage import log_store"),
        (
            "clonos.protocol.engine.instance",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import clonos.spark",
        ),
        ("clonos.storage.snapshots", "import pyspark"),
        ("clonos.storage.snapshots", "import clonos.wire.framing"),
        ("clonos.wire.framing", "from rocksdict import Rdict"),
        ("clonos.operators.pandas_state", "from pyspark.sql.types import StructType"),
        ("clonos.sinks.sql", "import grpc"),
        ("clonos_standby.replica.process", "def f():\n    from pyspark import TaskContext"),
        ("clonos_standby.replica.process", "import clonos.api.streams"),
        ("clonos.environment", "import grpc"),
        ("clonos.api.streams", "from clonos.tools.demo import command"),
    ],
)
def test_the_check_finds(module: str, source: str) -> None:
    assert complaints(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "clonos.protocol.engine.instance",
            "from . import delta\nfrom clonos.errors import Where\nimport numpy as np",
        ),
        (
            "clonos.protocol.engine.instance",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from random import Random",
        ),
        ("clonos.operators.pandas_state", "def f():\n    from pyspark.sql.types import StructType"),
        ("clonos.sinks.sql", "import sqlalchemy\nfrom clonos.protocol.recovery.causal.delta import x"),
        (
            "clonos_standby.replica.process",
            "from clonos.storage.log_store import LogStore\nfrom . import control",
        ),
        ("clonos.api.streams", "import pyspark\nfrom clonos.spark import plan\nfrom clonos import errors"),
    ],
)
def test_the_check_allows(module: str, source: str) -> None:
    assert not complaints(source, module)


def test_importing_the_package_loads_nothing_heavy_and_starts_nothing(root: Path) -> None:
    heavy = sorted(HEAVY | {"numpy", "socket", "multiprocessing", "asyncio"})
    program = (
        "import sys, threading, os, clonos\n"
        f"loaded = [name for name in {heavy!r} if name in sys.modules]\n"
        "children = open(f'/proc/self/task/{os.getpid()}/children').read() if os.path.isdir('/proc/self') else ''\n"
        "print(loaded, threading.active_count(), children.split())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "[] 1 []"
