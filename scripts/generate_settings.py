"""Writes docs/settings.md from `clonos.spark.settings.SETTINGS`; with --check, says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from clonos.spark.session import DEFAULTS, WITH_PLUGIN
from clonos.spark.settings import PREFIX, SETTINGS

TARGET = Path(__file__).parent.parent / "docs" / "settings.md"

HEAD = """# Settings

Given like any Spark setting, on the session's builder or at run time; checked when a query starts. Written by
`python scripts/generate_settings.py`.

| setting | default | takes | what it is |
| --- | --- | --- | --- |
"""

REST = """
`clonos.configure(builder)` also sets these of Spark's, where the builder has no value of its own, and appends the
plugin's jar to `spark.jars` and its class to `spark.plugins` (repeat to the builder what
`spark-defaults.conf` has of these two):

| setting | value |
| --- | --- |
"""


def text() -> str:
    ours = "".join(
        f"| `{PREFIX}{s.key}` | `{s.default or ' '}` | {s.reader.takes} | {s.says} |\n" for s in SETTINGS
    )
    sparks = "".join(f"| `{key}` | `{value}` |\n" for key, value in (WITH_PLUGIN | DEFAULTS).items())
    return HEAD + ours + REST + sparks


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if TARGET.exists() and TARGET.read_text() == text() else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
