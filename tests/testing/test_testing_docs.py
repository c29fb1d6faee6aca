"""The program in docs/testing.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_the_program_of_the_documentation(root: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "testing.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, "docs/testing.md", "exec"), names)
    assert names["asked"] == ["EUR"]
