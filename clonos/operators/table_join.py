"""A stream beside a table: each row meets the rows of the table with the same key, as the table is at that moment.

Which version of the table that was is recorded. An instance asks for the newest one with the first rows that come a
second after it has last asked; so all rows of a bundle see one version, and a replay sees those that were seen.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from clonos.errors import StorageUnavailable
from clonos.operators.column_flow import ColumnFlow, Input, Transformation, as_they_are, through
from clonos.operators.intercept.active import unanswered
from clonos.operators.process import Stateless
from clonos.operators.rows import RowDecoder
from clonos.protocol.engine.given_rows import rows_told
from clonos.values.grouping_keys import key_of
from clonos.values.key_codec import pack

ASKS_EVERY: Final = 1_000_000
"""Microseconds of the bundle clock."""
_STATE: Final = pack("the version of the table, and when the next one is asked for")
_PAUSE_SECONDS: Final = 0.5
_KEPT: Final = 2


class Tables(Protocol):
    def newest(self) -> str:
        """Which version the table has now. Raises StorageUnavailable."""

    def load(self, version: str) -> pa.Table:
        """Raises StorageUnavailable."""


class FixedTable:
    """A table that is always the same."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def newest(self) -> str:
        return "the only one"

    def load(self, version: str) -> pa.Table:
        return self._table


class How(enum.Enum):
    INNER = "inner"
    LEFT = "left"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"


class TableJoin(Stateless):
    """Output rows are the values of the key, the stream's others, and, of an inner or left join, the table's others."""

    form = "table join"

    def __init__(
        self,
        how: How,
        row: tuple[Sequence[int], Sequence[int]],
        table: pa.Schema,
        on: tuple[Sequence[int], Sequence[int]],
        output: pa.Schema,
        *,
        name: str,
        tz: str | None,
        tables: Tables | None = None,
    ) -> None:
        """`on` is the key's columns of the stream and of the table, `row` the others that are given out."""
        super().__init__(None, output, name=name, pure=False, tz=tz)
        self._how = how
        self._on, self._table_on = on
        self._values, self._table_values = row
        self._decoder = RowDecoder(table, tz)
        self._tables = tables
        self._loaded: dict[str, dict[Any, list[tuple[Any, ...]]]] = {}

    def column_flow(self, keys: int) -> ColumnFlow:
        on = as_they_are(Input.ROW, self._on)
        gives_table = self._how in (How.INNER, How.LEFT)
        table = as_they_are(Input.TABLE, self._table_values if gives_table else ())
        met = [*on, *as_they_are(Input.TABLE, self._table_on)]
        return ColumnFlow(
            (*on, *as_they_are(Input.ROW, self._values), *table),
            frozenset().union(*(through(flow, Transformation.JOIN) for flow in met)),
        )

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        met = self._version()
        on, values, how = self._on, self._values, self._how
        nothing: list[tuple[Any, ...]] = []
        alone = [(None,) * len(self._table_values)]
        made: list[tuple[Any, ...]] = []
        tell = rows_told(self._services)
        for row in rows:
            key = tuple([row[at] for at in on])
            found = nothing if None in key else met.get(key_of(key), nothing)
            if how is How.LEFT:
                found = found or alone
            elif how is How.LEFT_SEMI:
                found = [()] if found else nothing
            elif how is How.LEFT_ANTI:
                found = nothing if found else [()]
            if found:
                mine = key + tuple([row[at] for at in values])
                made += [mine + theirs for theirs in found]
            if tell is not None:
                tell(len(made))
        return made

    def _version(self) -> dict[Any, list[tuple[Any, ...]]]:
        """The rows of the table by key, as this bundle sees it."""
        now, kept = self._services.clock(), self._services.state.get(_STATE)
        if kept is None or now >= kept[1]:
            assert self._tables is not None, "they are given when the query starts"
            kept = [self._services.call(self._newest, (), {}), now + ASKS_EVERY]
            self._services.state.put(_STATE, kept)
        version = kept[0]
        if version not in self._loaded:
            while len(self._loaded) >= _KEPT:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[version] = unanswered(self._by_key, version)
        return self._loaded[version]

    def _newest(self) -> str:
        """What is recorded is repeated for ever: while storage is away it is waited for, as long as a call may take."""
        assert self._tables is not None
        while True:
            try:
                return self._tables.newest()
            except (StorageUnavailable, FileNotFoundError):
                time.sleep(_PAUSE_SECONDS)

    def _by_key(self, version: str) -> dict[Any, list[tuple[Any, ...]]]:
        assert self._tables is not None
        found: dict[Any, list[tuple[Any, ...]]] = {}
        for batch in self._tables.load(version).to_batches():
            for row in self._decoder.decode(batch)[1]:
                key = tuple([row[at] for at in self._table_on])
                if None not in key:
                    found.setdefault(key_of(key), []).append(tuple([row[at] for at in self._table_values]))
        return found
