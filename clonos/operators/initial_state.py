"""The rows that keys begin with (PySpark's `initialState`): which of them an instance gets, and when.

The rows of all instances are a table in the checkpoint, as it was when the query first started. An instance takes those
of its own keys in the first step that it executes, before the records of that step. A timer that is due from the
beginning sees to it that there is such a step although no records come. That they were taken is kept in the state, so
it is as durable as what the function made of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from clonos.errors import StorageUnavailable
from clonos.operators.rows import RowDecoder, zone_of
from clonos.operators.table_join import Tables
from clonos.operators.types import key_kind
from clonos.protocol.destination import KeyColumn, route_by_key
from clonos.protocol.operator import Services
from clonos.values.grouping_keys import key_of
from clonos.values.key_codec import pack

TIMER: Final = "\x00initial state"
_TAKEN: Final = pack(TIMER)
_AT_ONCE: Final = 0
_NO_KEY: Final = b""

_Row = tuple[Any, ...]


class RowsByInstance:
    """The rows of a table, by the instance that has their keys. `key` is the places of the key's columns."""

    def __init__(
        self, tables: Tables, schema: pa.Schema, key: Sequence[int], parallelism: int, tz: str | None
    ) -> None:
        self._tables = tables
        self._schema = schema
        self._key = tuple(key)
        self._parallelism = parallelism
        self._tz = tz

    def of(self, instance: int) -> dict[_Row, list[_Row]]:
        """By key, in the order of the table. Raises StorageUnavailable."""
        columns = [KeyColumn(at, key_kind(self._schema.field(at).type)) for at in self._key]
        route = route_by_key(columns, self._parallelism, zone=zone_of(self._tz) or dt.UTC)
        decoder = RowDecoder(self._schema, self._tz)
        found: dict[_Row, list[_Row]] = {}
        for batch in self._tables.load(self._tables.newest()).to_batches():
            rows = decoder.decode(batch)[1]
            for row, owner in zip(rows, route(rows), strict=True):
                if owner == instance:
                    found.setdefault(key_of([row[at] for at in self._key]), []).append(row)
        return found


class InitialState:
    """Those of one instance."""

    def __init__(self, rows: RowsByInstance, services: Services, name: str) -> None:
        self._rows = rows
        self._services = services
        self._name = name
        self._taken = services.state.get(_TAKEN) is not None
        if not self._taken:
            services.timers.set(_AT_ONCE, _NO_KEY, TIMER)

    def take(self) -> dict[_Row, list[_Row]]:
        """By key, in the order of the table, when it is asked for the first time; nothing from then on.

        Raises StorageUnavailable."""
        if self._taken:
            return {}
        try:
            found = self._rows.of(self._services.where(None).instance or 0)
        except FileNotFoundError as error:
            raise StorageUnavailable(
                f"the initial state of {self._name!r} is not in the checkpoint: {error}",
                hint="Restore the checkpoint's folder clonos as a whole",
            ) from None
        self._taken = True
        self._services.state.put(_TAKEN, True)
        self._services.timers.cancel(_AT_ONCE, _NO_KEY, TIMER)
        return found
