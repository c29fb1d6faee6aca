"""The program in docs/api.md, and the one that needs no broker, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def carried_out(program: str, name: str) -> dict[str, Any]:
    """The names that a program leaves."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, name, "exec"), names)
    assert not names["query"].isActive and names["query"].exception() is None
    return names


def test_the_program_of_the_documentation(spark: Any, root: Path) -> None:
    page = (root / "docs" / "api.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    rows = carried_out(program, "api.md")["rows"]
    spent = sorted((row["card"], row["spent"]) for row in rows)
    assert len(spent) == 6 and dict(spent) == {"card0": 3, "card1": 5, "card2": 7}


def test_the_program_that_needs_no_broker(
    spark: Any,
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Spark takes relative paths from where its JVM was started, and in a test that is the source tree.
    text = (root / "examples" / "quickstart.py").read_text("utf-8").replace('"first/', f'"{tmp_path}/first/')
    carried_out(text, "quickstart.py")
    assert "card0" in capsys.readouterr().out
    rows = [
        row for file in (tmp_path / "first" / "out").glob("*.jsonl") for row in file.read_text().splitlines()
    ]
    assert len(rows) == 100
