"""What a call of PySpark's stateful functions covers: a bundle's records, or, as in Spark, an epoch's.

Spark drops late records before functions that have event-time timers or timeouts, and calls such functions once per key
and micro-batch, keys in order, timers behind them. The former is done here always. The latter is `per="batch"`: records
are gathered, and the core asks for them when the epoch ends (`Instance.end_epoch`); no snapshot is taken meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo
from typing import Any

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.rows import instant, zone_of
from clonos.protocol.event_time import is_late
from clonos.protocol.operator import Services

__all__ = ["BATCH", "BUNDLE", "Batches", "Groups", "in_order"]

BATCH, BUNDLE = "batch", "bundle"

_Row = tuple[Any, ...]
Groups = dict[_Row, list[_Row]]


class Batches:
    """Records on their way into an operator. `event_time` names the column that tells which are late."""

    def __init__(self, schema: pa.Schema, tz: str | None, event_time: str | None, per: str) -> None:
        if per not in (BATCH, BUNDLE):
            raise QueryDefinitionError(
                f"per={per!r} is unknown",
                hint=f"Say {BATCH!r} (one call per key and micro-batch, as in Spark) or {BUNDLE!r}",
            )
        self.per_epoch = per == BATCH
        self._column = -1 if event_time is None else schema.get_field_index(event_time)
        self._zone: tzinfo | None = zone_of(tz)
        self._held: Groups = {}

    def on_time(self, keys: list[_Row], rows: list[_Row], services: Services) -> Iterable[tuple[_Row, _Row]]:
        """The pairs that are not late, in their order. Without an event time none is late."""
        pairs, watermark = zip(keys, rows, strict=True), services.epoch_watermark
        late: list[int] = []
        if self._column >= 0 and watermark is not None:
            late = [at for at, row in enumerate(rows) if self._late(row[self._column], watermark)]
            services.drop_late(len(late))
        if (sets := services.input_sets) is not None:
            sets.passes_over(late)
            if self.per_epoch:
                sets.gathers()
        if not late:
            return pairs
        passed_over = frozenset(late)
        return [pair for at, pair in enumerate(pairs) if at not in passed_over]

    def take(self, pairs: Iterable[tuple[_Row, _Row]]) -> Groups:
        """By key, in the order in which keys first appear: what to process now. What is gathered is not."""
        groups: Groups = self._held if self.per_epoch else {}
        for key, row in pairs:
            groups.setdefault(key, []).append(row)
        return {} if self.per_epoch else groups

    def gathered(self) -> Groups:
        """All that is held, keys in Spark's order."""
        held, self._held = self._held, {}
        return dict(sorted(held.items(), key=lambda group: in_order(group[0])))

    def _late(self, moment: Any, epoch_watermark: int) -> bool:
        return moment is not None and is_late(instant(moment, self._zone), epoch_watermark)


def in_order(key: _Row) -> list[tuple[bool, Any]]:
    """By which keys are sorted: nulls first, then by value."""
    return [(value is not None, value) for value in key]
