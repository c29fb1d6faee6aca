"""The program in docs/api.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_the_program_of_the_documentation(spark: Any, root: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "api.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, "docs/api.md", "exec"), names)
    spent = sorted((row["card"], row["spent"]) for row in names["rows"])
    assert len(spent) == 6 and dict(spent) == {"card0": 3, "card1": 5, "card2": 7}
    assert not names["query"].isActive and names["query"].exception() is None
