"""Values of columns that are not to be shown, in what is explained."""

from __future__ import annotations

from typing import Any, Final

MASKED: Final = "***"
"""In the place of such a value."""


def masked_row(row: dict[str, Any], columns: frozenset[str]) -> dict[str, Any]:
    return {name: MASKED if name in columns else value for name, value in row.items()}


def names_of(said: dict[str, Any]) -> set[str]:
    """Of the columns that are shown."""
    found = set(said.get("row", {}))
    for one in said.get("inputs", ()):
        found |= set(one["row"]) | names_of(one.get("made_by", {}))
    return found


def mask(said: dict[str, Any], columns: frozenset[str]) -> None:
    """In place: columns of these names, wherever they are, and state, keys, timers and what the function asked for,
    which may have been made of them."""
    said["row"] = masked_row(said.get("row", {}), columns)
    for one in said.get("state", ()):
        one |= {"key": MASKED, "before": MASKED, "after": MASKED}
    said["keys"] = [MASKED for _ in said.get("keys", ())]
    for one in said.get("timers", ()):
        one["name"] = MASKED
    for one in said.get("asked", ()):
        if one["kind"] not in ("clock", "draw"):
            one |= {name: MASKED for name in ("what", "given", "raised") if name in one}
    for one in said.get("inputs", ()):
        one["row"] = masked_row(one["row"], columns)
        if "made_by" in one:
            mask(one["made_by"], columns)
