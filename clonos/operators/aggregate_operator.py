"""`agg`, `count`, `sum` and their like behind `groupBy`: the results of a key as they are after a bundle, or an epoch.

As in Spark's update mode a row is given for each key that has had rows; where Spark does that once per micro-batch, it
is done here once per bundle, or with `per="batch"` once per epoch, when its input has ended. Rows are added to what is
kept as they come, and not held.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pyarrow as pa

from clonos.errors import StateError, UserFunctionError
from clonos.operators.aggregate_flow import of_aggregation
from clonos.operators.batches import BATCH, in_order
from clonos.operators.column_flow import ColumnFlow
from clonos.operators.expressions.aggregates import OTHERS_ARE_KEPT, Aggregation, Fold, Kept
from clonos.operators.expressions.compiled import EvaluationError
from clonos.operators.outputs import row_index
from clonos.protocol.operator import EntryPlace, Services
from clonos.values.key_codec import kept_under, pack

Row = tuple[Any, ...]
_WHAT: Final = "aggregates"
"""Under it stands the digest of the calls that what is kept is of."""


class AggregateOperator:
    """`aggregation.results` are over the key's values and the results of the calls."""

    form = "agg"
    record_at_a_time = False

    def __init__(self, aggregation: Aggregation, output: pa.Schema, *, name: str, per: str) -> None:
        self.per, self.per_epoch = per, per == BATCH
        self._aggregation = aggregation
        self._fold = Fold(aggregation)
        self._digest = aggregation.digest
        self._name = name
        self._changed: dict[Row, None] = {}  # keys with rows that have given none yet

    def column_flow(self, keys: int) -> ColumnFlow:
        return of_aggregation(self._aggregation, keys)

    def open(self, services: Services) -> None:
        self._services = services
        if services.input_sets is not None:
            services.input_sets.entries_are(EntryPlace.UNDER_KEYS)

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        loaded: dict[Row, list[Kept]] = {}
        left = iter(rows)
        try:
            for key, row in zip(keys, left):
                kept = loaded.get(key)
                if kept is None:
                    kept = loaded[key] = self._load(key)
                self._fold.add(kept, row)
            for key, kept in loaded.items():
                self._services.state.put(pack(key), {_WHAT: self._digest, "kept": kept})
        except EvaluationError as error:
            raise self._failed(error, row_index(left, len(rows))) from error
        results: list[Row] = []
        if self.per_epoch:
            self._changed.update(dict.fromkeys(loaded))
        else:
            results = self._results(loaded.items())
        if (sets := self._services.input_sets) is not None:
            sets.adds_each([(pack(key), _WHAT) for key in keys])
        return results

    def gathered(self) -> list[Row]:
        changed, self._changed = self._changed, {}
        return self._results((key, self._load(key)) for key in sorted(changed, key=in_order))

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        return []

    def pieces(self) -> AbstractContextManager[None]:
        return nullcontext()

    def kept(self, key: Row) -> dict[bytes, Any]:
        return kept_under(self._services, pack(key))

    def user_state(self, key: Row) -> Row | None:
        """The results for a key, as they are."""
        if self._services.state.get(pack(key)) is None:
            return None
        return self._fold.row(key, self._load(key))

    def close(self) -> None:
        pass

    def _load(self, key: Row) -> list[Kept]:
        found = self._services.state.get(pack(key))
        if (sets := self._services.input_sets) is not None:
            sets.holds((pack(key), _WHAT), 0 if found is None else 1)
        if found is None:
            return [*self._fold.nothing]
        if found.get(_WHAT) != self._digest:
            raise StateError(
                f"what {self._name!r} has kept for key {key!r} is of other aggregates than it has now",
                where=self._services.where(None),
                hint=OTHERS_ARE_KEPT,
            )
        kept: list[Kept] = found["kept"]
        return kept

    def _results(self, changed: Iterable[tuple[Row, list[Kept]]]) -> list[Row]:
        made: list[Row] = []
        if (sets := self._services.input_sets) is not None:
            sets.rows_go_to(made)
        try:
            for key, kept in changed:
                if sets is not None:
                    sets.rows_are_of((pack(key), _WHAT), key=pack(key))
                made.append(self._fold.row(key, kept))
            return made
        except EvaluationError as error:
            raise self._failed(error, None) from error

    def _failed(self, error: EvaluationError, index: int | None) -> UserFunctionError:
        text = f"an aggregate of {self._name!r} has no value: {error}"
        return UserFunctionError(text, where=self._services.where(index))
