"""Values as text that is the same for equal values to the bit, whatever the order of a dict's or a set's items."""

from __future__ import annotations

from typing import Any


def canonical(value: Any) -> str:
    if isinstance(value, dict):
        items = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return "{" + ", ".join([f"{key}: {item}" for key, item in items]) + "}"
    if isinstance(value, set | frozenset) and value:
        inside = "{" + ", ".join(sorted(map(canonical, value))) + "}"
        return inside if isinstance(value, set) else f"frozenset({inside})"
    if isinstance(value, list):
        return "[" + ", ".join(map(canonical, value)) + "]"
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return "(" + ", ".join(map(canonical, value)) + ("," if len(value) == 1 else "") + ")"
    return repr(value)
