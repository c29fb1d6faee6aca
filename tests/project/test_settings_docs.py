"""docs/settings.md says what the settings are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_table_is_current(root: Path) -> None:
    done = subprocess.run([sys.executable, "scripts/generate_settings.py", "--check"], cwd=root, check=False)
    assert done.returncode == 0, "run: python scripts/generate_settings.py"
