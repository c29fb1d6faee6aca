"""`mode="upsert"`: the table holds one row per key, the newest.

Rows of one upstream instance pass one sink instance, in the order of their output numbers, so the last that was written
is the newest. Where several upstream instances make rows of one key, the transaction that commits last wins.

What protects a newer row from one that a recovery repeats are the cursors, as for any sink. As the unique id does for
inserts, the statement is the last line of defence: it does not replace a row by an older output of the same instance,
or by the same output. A row that was deleted leaves nothing that could be compared with.

Of a bundle only the last row per key is written, in the order of the bundle. What the unique index of the table takes
for one key although Python does not (a column that ignores case) thus ends as the last of them, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from clonos.errors import QueryDefinitionError, SinkError
from clonos.sinks.values import column_names, is_binary

KEY_TYPES = "strings, integers, booleans, dates, timestamps, binary and decimals without a scale"


@dataclass(frozen=True, slots=True)
class Upsert:
    """The columns of the rows that make the key, and the one that says that the key's row is to go."""

    key: tuple[str, ...]
    delete: str | None = None

    def check(self, rows: pa.Schema) -> None:
        """Refuse, by QueryDefinitionError, rows that cannot be told apart by this key."""
        lacking = [name for name in (*self.key, self.delete) if name not in (None, *rows.names)]
        if lacking:
            raise QueryDefinitionError(
                f"key= or delete= names what the rows do not have: {', '.join(map(str, lacking))}"
            )
        for name in self.key:
            if not _can_be_key(rows.field(name).type):
                raise QueryDefinitionError(
                    f"column {name!r} of type {rows.field(name).type} cannot be a key: equal values need not be the "
                    "same to the database",
                    hint=f"Keys are {KEY_TYPES}; cast it before the sink, or leave it out of key=",
                )
        if self.delete is not None and not pt.is_boolean(rows.field(self.delete).type):
            raise QueryDefinitionError(
                f"delete={self.delete!r} must be a boolean column, not {rows.field(self.delete).type}"
            )


def upsert_of(mode: str, key: str | Sequence[str] | None, delete: str | None) -> Upsert | None:
    """What these arguments of a sink say; None where rows are inserted. Raises QueryDefinitionError."""
    if mode not in ("insert", "upsert"):
        raise QueryDefinitionError(f'mode must be "insert" or "upsert", not {mode!r}')
    columns = column_names(key)
    if mode == "insert":
        if columns or delete is not None:
            raise QueryDefinitionError(
                "key= and delete= say which rows are replaced or deleted, and a sink that inserts does neither",
                hint='Write mode="upsert" beside them, or leave them out',
            )
        return None
    if not columns:
        raise QueryDefinitionError(
            'mode="upsert" needs a key', hint='Name the columns by which rows are told apart: key="account"'
        )
    if len(set(columns)) < len(columns) or delete in columns:
        raise QueryDefinitionError(f"a column is named twice in key={columns!r}, delete={delete!r}")
    return Upsert(columns, delete)


def _can_be_key(kind: pa.DataType) -> bool:
    if pt.is_decimal(kind):
        return bool(kind.scale == 0)
    known = (
        pt.is_string, pt.is_large_string, pt.is_signed_integer, pt.is_boolean, pt.is_date, pt.is_timestamp,
        is_binary,
    )  # fmt: skip
    return any(is_one(kind) for is_one in known)


@dataclass(frozen=True, slots=True)
class Change:
    """Rows for one statement: the ids, and its parameters, one tuple per row."""

    ids: list[str]
    values: list[tuple[Any, ...]]
    deletes: bool = False


class Newest:
    """Turns a bundle's rows into changes of a table that holds the newest row per key."""

    def __init__(self, upsert: Upsert, names: Sequence[str]) -> None:
        """`names`: the columns of the rows, in their order."""
        self._names = upsert.key
        self._key = [names.index(name) for name in upsert.key]
        self._delete = None if upsert.delete is None else names.index(upsert.delete)
        self._written = [at for at in range(len(names)) if at != self._delete]

    def changes(self, ids: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Change]:
        """`columns`: the rows' columns, encoded. Raises SinkError where a key has no value."""
        keys = [columns[at] for at in self._key]
        for name, values in zip(self._names, keys, strict=True):
            if None in values:
                row_id = ids[list(values).index(None)]
                raise SinkError(
                    f"row {row_id}: column {name!r} of the key is null",
                    hint="Nothing of its bundle was written. A table with one row per key has no place for a row "
                    "without one: filter such rows, or give them a value, before the sink",
                )
        last = {tuple(map(_comparable, key)): at for at, key in enumerate(zip(*keys, strict=True))}
        chosen = sorted(last.values())
        return [
            self._change([*run], ids, columns, deletes=deletes)
            for deletes, run in groupby(chosen, lambda at: self._goes(columns, at))
        ]

    def check_merging(
        self, ids: Sequence[str], columns: Sequence[Sequence[Any]], merging: Mapping[int, str]
    ) -> None:
        """Raises SinkError where the database may take a key for another one. `merging`: by the column of the key, the
        character that does it, a space at the end or U+0000 anywhere."""
        for at, character in merging.items():
            for row_id, value in zip(ids, columns[self._key[at]], strict=True):
                if not isinstance(value, str) or character not in value:
                    continue
                if character != " ":
                    what, way = "holds U+0000", "Remove that"
                elif value.endswith(" "):
                    what = "ends with a space"
                    way = (
                        "Give the column a collation in which spaces count (utf8mb4_0900_bin of MySQL, "
                        "utf8mb4_nopad_bin of MariaDB), or cut them"
                    )
                else:
                    continue
                raise SinkError(
                    f"row {row_id}: column {self._names[at]!r} of the key {what}, by which the database may take it "
                    "for another one",
                    hint=f"Nothing of its bundle was written. {way} before the sink",
                )

    def _goes(self, columns: Sequence[Sequence[Any]], at: int) -> bool:
        return self._delete is not None and columns[self._delete][at] is True

    def _change(
        self, chosen: list[int], ids: Sequence[str], columns: Sequence[Sequence[Any]], *, deletes: bool
    ) -> Change:
        own = [ids[at] for at in chosen]
        wanted = [columns[place] for place in (self._key if deletes else self._written)]
        values = [(ids[at], *(column[at] for column in wanted)) for at in chosen]
        return Change(own, values, deletes)

    def key_of(self, change: Change, row_id: str) -> tuple[Any, ...]:
        """The key of a row of the change, encoded."""
        values = change.values[change.ids.index(row_id)][1:]
        return values if change.deletes else tuple(values[self._written.index(at)] for at in self._key)


def _comparable(value: Any) -> Any:
    """Equal for equal values of a key's column alone. To Python the two instants of a repeated hour are one."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def inserts(ids: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Change]:
    """Every row as it is."""
    return [Change(list(ids), list(zip(ids, *columns, strict=True)))]
