"""JSON of files and of users, read so that whatever is wrong with it is a ValueError.

`json.loads` raises RecursionError for text that is nested too deeply, as damage or a user may make it; and what is
nested less deeply may be too deep for what goes through it by recursion.
"""

from __future__ import annotations

import json
from typing import Any, Final

DEEPEST: Final = 200
"""Levels of lists and objects in each other, more than anything that is written here, or by Spark, has."""


def parsed_json(text: str | bytes | bytearray, **hooks: Any) -> Any:
    """What the text says; `hooks` are those of `json.loads`. Raises ValueError where it is not JSON, or nested more
    than `DEEPEST` levels deep."""
    try:
        said = json.loads(text, **hooks)
    except RecursionError:
        raise _too_deep() from None
    if _begins(text) > DEEPEST and _is_deeper(said, DEEPEST):
        raise _too_deep()
    return said


def _begins(text: str | bytes | bytearray) -> int:
    """At least as many as there are levels."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")  # in UTF-16 and UTF-32, too


def _is_deeper(said: Any, levels: int) -> bool:
    layer = [said]
    for _ in range(levels):
        layer = [
            each
            for outer in layer
            if isinstance(outer, list | dict)
            for each in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(each, list | dict) for each in layer)


def _too_deep() -> ValueError:
    return ValueError(f"it is nested more than {DEEPEST} levels deep")
