"""JSON that damage or a user may have made is read by `clonos.json_text` alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from clonos.json_text import DEEPEST, parsed_json

ROOT = Path(__file__).parents[2]
OF_PROGRAMS = (  # what they read was written by Spark, or by a process of the same command
    "clonos/api/query.py",
    "clonos/archive/trial_process.py",
    "clonos/json_text.py",
    "clonos/sim/",
    "clonos/spark/openlineage/",
    "clonos/tools/demo/",
    "clonos/tools/flights/",
    "clonos/tools/log/replaying.py",
    "clonos/tools/nexmark/",
    "clonos/tools/serve/archive_questions.py",
    "clonos/wire/replica_client.py",
    "standby/clonos_standby/cluster/launcher.py",
    "standby/clonos_standby/server/sidecar.py",
)


def reads_json(path: Path) -> bool:
    found = ast.walk(ast.parse(path.read_text("utf-8")))
    return any(
        isinstance(each, ast.Attribute)
        and each.attr in ("load", "loads")
        and isinstance(each.value, ast.Name)
        and each.value.id == "json"
        for each in found
    )


def test_all_of_it_is_read_there() -> None:
    paths = [path for folder in ("clonos", "standby") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in paths if reads_json(path)}
    assert found
    assert [each for each in sorted(found) if not each.startswith(OF_PROGRAMS)] == []


@pytest.mark.parametrize("begin", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("levels", [DEEPEST + 1, 100_000])
def test_what_is_nested_too_deeply_is_no_json(begin: str, levels: int) -> None:
    end = {"[": "]", '{"a":': "}", '[{"a":': "}]"}[begin]
    each = begin.count("[") + begin.count("{")
    whole = begin * (levels // each + levels % each) + "1" + end * (levels // each + levels % each)
    for text in (whole, whole[: len(begin) * levels], whole.encode()):
        with pytest.raises(ValueError, match=r"200 levels|Expecting"):
            parsed_json(text)


def test_what_is_wide_is_read() -> None:
    wide = [[{"a": [number]}] for number in range(3 * DEEPEST)]
    deep = "[" * DEEPEST + "]" * DEEPEST
    assert parsed_json(str(wide).replace("'", '"')) == wide
    assert parsed_json(deep) and parsed_json(f"[{deep[1:-1]}, 1]")[1] == 1
