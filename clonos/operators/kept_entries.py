"""Which operators keep records themselves, beside what a user's function keeps: joins, windows, aggregates. Their rows
are of more than what the call was given that made them."""

from __future__ import annotations

from typing import Final

from clonos.operators.process import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from clonos.operators.record_batches import ArrowIteratorOperator, BatchOperator, FrameIteratorOperator
from clonos.operators.table_join import TableJoin

_WITHOUT_ENTRIES: Final = frozenset(
    kind.form
    for kind in (
        *(ProcessOperator, MapOperator, FlatMapOperator, FilterOperator),
        *(BatchOperator, ArrowIteratorOperator, FrameIteratorOperator, TableJoin),
    )
)


def keeps_nothing(form: str) -> bool:
    """Whether operators of a form keep nothing at all from one call to the next: no state, no timers."""
    return not keeps_entries(form) and form != ProcessOperator.form


def keeps_entries(form: str) -> bool:
    """Whether operators of a form may. Among those of `connect` are the joins."""
    return form.removeprefix("pure ") not in _WITHOUT_ENTRIES
