"""The programs in docs/testing.md and docs/classify.md run as they stand there."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from clonos import cli


def test_the_program_of_the_documentation(root: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "testing.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, "docs/testing.md", "exec"), names)
    assert names["asked"] == ["EUR"]


def test_the_program_about_classes(root: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "classify.md").read_text(), re.DOTALL)
    exec(compile(program, "docs/classify.md", "exec"), {"__name__": "__main__"})


def test_the_report_about_classes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of the page, with the function of its program, prints what the page shows."""
    text = (root / "docs" / "classify.md").read_text()
    (shown,) = re.findall(r"^    \$ clonos (.*?)\n((?:    .*\n|\n)*)", text, re.MULTILINE)
    (function,) = re.findall(r"^def highest.*?\n\n", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "job.py").write_text(function)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "job", raising=False)
    assert cli.main(shlex.split(shown[0])) == 0
    assert capsys.readouterr().out.strip() == textwrap.dedent(shown[1]).strip()
