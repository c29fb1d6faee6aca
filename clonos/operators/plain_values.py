"""Values of rows as state keeps them."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """A struct is a tuple of its values."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return list(map(plain, value))
    return {plain(key): plain(each) for key, each in value.items()} if isinstance(value, dict) else value
