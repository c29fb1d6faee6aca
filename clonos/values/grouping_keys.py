"""Grouping keys as tuples that are equal exactly when they are one key.

A TIMESTAMP is an instant, and shown to the user as a naive datetime in the session's zone. Where clocks are turned
back, two instants have the same wall time; `fold` tells them apart, but Python's comparison of naive datetimes ignores
it. They are two keys all the same, as in Spark: they may even belong to two instances.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any


class FoldedKey(tuple[Any, ...]):
    """A key with a timestamp that is the second one of its wall time. No other key is equal to it."""

    __slots__ = ()

    @property
    def folds(self) -> tuple[int, ...]:
        return tuple([value.fold if isinstance(value, dt.datetime) else 0 for value in self])

    def __eq__(self, other: object) -> bool:
        return type(other) is FoldedKey and tuple.__eq__(self, other) and self.folds == other.folds

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)


def key_of(values: Iterable[Any]) -> tuple[Any, ...]:
    """The key with these values."""
    key = tuple(values)
    return FoldedKey(key) if any(isinstance(value, dt.datetime) and value.fold for value in key) else key
