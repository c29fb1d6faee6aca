"""What user functions hand back, as tuples of the output schema.

A row is taken as it is at the moment it is handed back (`clonos.operators.as_yielded`): what is not a tuple becomes one
at once. The length of all rows is checked in bulk after the bundle.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from clonos.errors import ClonosError, InputError, UserFunctionError
from clonos.operators.as_yielded import row_copier
from clonos.operators.rows import field_names, names_of_all, struct_values
from clonos.protocol.operator import Services

RAISED: Final = (Exception, SystemExit, GeneratorExit, KeyboardInterrupt, CancelledError)
"""What a user's function may raise: none of it must end the replica in silence."""


def schema_names(output: pa.Schema | Sequence[str]) -> list[str]:
    return list(output.names) if isinstance(output, pa.Schema) else list(output)


class Outputs:
    """Normalises the output rows of one function.

    `plain` is the type of rows that cannot change any more and are collected without a call: tuple, or none where the
    schema has columns with values that can. Others are `taken`: made what they are now, whatever becomes of the object.
    """

    def __init__(self, output: pa.Schema | Sequence[str], name: str) -> None:
        self.names = schema_names(output)
        self._widths = {len(self.names)}
        self._name = name
        self._in_order: set[type] = set()  # classes of tuples whose names are those of the schema
        self.copier = row_copier(output)
        self.plain: Any = tuple if self.copier is None else None
        self.taken = self.row if self.copier is None else self._copied

    def collect(self, given: Iterable[Any], made: list[tuple[Any, ...]]) -> None:
        """Add rows to `made`, each as it is when the function hands it back."""
        plain, append = self.plain, made.append
        for row in given:
            append(row if type(row) is plain else self.taken(row, made))

    def _copied(self, value: Any, before: Iterable[Any]) -> tuple[Any, ...]:
        assert self.copier is not None
        if type(value) is not tuple or len(value) != len(self.names):
            value = self.row(value, before)
        return self.copier(value)

    def settle(self, made: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """All outputs of a bundle, of the right length. Raises InputError."""
        if not made or set(map(len, made)) == self._widths:
            return made
        return [self.row(value, islice(made, index)) for index, value in enumerate(made)]

    def row(self, value: Any, before: Iterable[Any]) -> tuple[Any, ...]:
        """One output: a tuple, list, dict, Row, named tuple or data class. `before` are those in front of it, among
        which there may be marks (`engine.given_rows`)."""
        kind = type(value)
        if kind in self._in_order:
            return tuple(value)
        try:
            values = tuple(struct_values(value, self.names))
        except TypeError as error:
            hint = "Yield or return an iterable of rows"
            if isinstance(value, (str, int, float)):
                hint += "; a single row must be yielded, or returned inside a list"
            elif field_names(value) is not None:
                hint += "; a row with names goes by its names, tuple(row) by position"
            index = sum(one is not None for one in before)
            raise InputError(f"output {index} of {self._name!r} is not a row: {error}", hint=hint) from error
        if names_of_all(kind) == tuple(self.names):
            self._in_order.add(kind)
        return values


def failed(
    error: BaseException,
    name: str,
    services: Services,
    index: int | None,
    what: str = "",
    result: Any = (),
    hint: str | None = None,
) -> ClonosError:
    """What to raise for an exception out of a user function: errors of our own with their place. `result` is what the
    function returned last; one that cannot be iterated is the cause then."""
    if isinstance(error, ClonosError):
        return error.at(services.where(index))
    if isinstance(error, TypeError) and result is not None and not hasattr(type(result), "__iter__"):
        return InputError(
            f"{name!r} returned {result!r}{what}, which is no iterable of rows",
            where=services.where(index),
            hint="Yield rows, or return a list of them or None",
        )
    text = f"{name!r} raised {type(error).__name__}{what}: {error}"
    return UserFunctionError(text, where=services.where(index), hint=hint)


def row_index(rows: Any, count: int) -> int | None:
    """Which of `count` rows a half-consumed list iterator gave last."""
    index = count - int(rows.__length_hint__()) - 1
    return index if index >= 0 else None
