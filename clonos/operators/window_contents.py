"""What is kept of a window until it ends: its rows, or what they have been added up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import tzinfo
from typing import Any, Final, Protocol

import pyarrow as pa

from clonos.operators.rows import Row, row_type
from clonos.operators.values import Codec
from clonos.operators.window_context import WindowContext
from clonos.operators.window_fold import WindowFold
from clonos.operators.windows import Window
from clonos.values.grouping_keys import key_of

Key = tuple[Any, ...]
Kept = Any
"""Of a window that has no row yet it is None."""

_ROWS_PER_PIECE: Final = 256
_ROWS, _COLUMNS = "rows", "columns"


class Contents(Protocol):
    form: str
    """Contents of one form can go on with what another one has kept."""

    def add(self, key: Key, number: int, kept: Kept, row: Any, ctx: WindowContext) -> Kept:
        """What is kept after a row. The number is of the window: no other that is open has it."""

    def merge(self, one: Kept, other: Kept) -> Kept:
        """Of two windows that are one now, the earlier one first."""

    def finish(self, key: Key, window: Window, kept: Kept, ctx: WindowContext) -> Any:
        """The output rows of a window that has ended."""

    def pieces(self, key: Key, kept: Kept) -> list[Key]:
        """Under which other keys more of it is kept."""


class Aggregate:
    """`add(kept, row, ctx)` gives what is kept after a row, `finish(key, window, kept, ctx)` the output rows, and
    `merge(one, other)` what is kept of two sessions that are one now."""

    form = "aggregate"

    def __init__(
        self, add: Callable[..., Any], finish: Callable[..., Any], merge: Callable[..., Any] | None = None
    ) -> None:
        self._add = add
        self._finish = finish
        self._merge = merge

    @property
    def fold(self) -> WindowFold | None:
        """The aggregates of Spark's whose functions these are, if they are."""
        fold = getattr(self._finish, "__self__", None)
        return fold if isinstance(fold, WindowFold) else None

    def add(self, key: Key, number: int, kept: Kept, row: Any, ctx: WindowContext) -> Kept:
        return self._add(kept, row, ctx)

    def merge(self, one: Kept, other: Kept) -> Kept:
        assert self._merge is not None, "sessions without it are refused when the query is defined"
        return self._merge(one, other)

    def finish(self, key: Key, window: Window, kept: Kept, ctx: WindowContext) -> Any:
        return self._finish(key, window, kept, ctx)

    def pieces(self, key: Key, kept: Kept) -> list[Key]:
        return []


class AllRows:
    """`fn(key, window, rows, ctx)` gives the output rows.

    Rows are kept in pieces, each under a key of its own, so that a row that comes writes one piece anew and not the
    whole window. Of the window itself the names of its pieces are kept, and how many rows the last one has. A piece is
    called after the window in which it began, and how many that had then.
    """

    form = "rows"

    def __init__(self, fn: Callable[..., Any], input: pa.Schema, zone: tzinfo | None, operator: str) -> None:
        self._fn = fn
        self._codec = Codec(input, zone, f"a row that waits in a window of {operator!r}")
        self._columns = tuple(input.names)
        self._class = row_type(self._columns)

    def add(self, key: Key, number: int, kept: Kept, row: Any, ctx: WindowContext) -> Kept:
        pieces, rows = kept or ([], 0)
        if rows % _ROWS_PER_PIECE == 0:
            pieces, rows = [*pieces, [pieces[0][0] if pieces else number, len(pieces)]], 0
        piece = ctx.state_under(key_of((*key, *pieces[-1])))
        if piece.setdefault(_COLUMNS, self._columns) != self._columns:
            piece[_ROWS] = list(self._fitted(piece))
            piece[_COLUMNS] = self._columns
        piece.setdefault(_ROWS, []).append(self._codec.store(tuple(row)))
        return [pieces, rows + 1]

    def merge(self, one: Kept, other: Kept) -> Kept:
        return [one[0] + other[0], other[1]]

    def finish(self, key: Key, window: Window, kept: Kept, ctx: WindowContext) -> Any:
        return self._fn(key, window, list(self._rows(key, kept, ctx)), ctx)

    def pieces(self, key: Key, kept: Kept) -> list[Key]:
        return [key_of((*key, *piece)) for piece in kept[0]]

    def _rows(self, key: Key, kept: Kept, ctx: WindowContext) -> Iterator[Row]:
        """They are given out, and kept no longer."""
        for name in self.pieces(key, kept):
            piece = ctx.state_under(name)
            for values in self._fitted(piece):
                yield tuple.__new__(self._class, self._codec.load(values))
            piece.clear()

    def _fitted(self, piece: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Its rows, in the columns of now: one that was added is null in the rows from before."""
        if piece[_COLUMNS] == self._columns:
            yield from piece[_ROWS]
            return
        for values in piece[_ROWS]:
            known = dict(zip(piece[_COLUMNS], values, strict=True))
            yield tuple(known.get(column) for column in self._columns)
