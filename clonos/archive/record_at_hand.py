"""One record by itself: the operator of its function, built anew without a query, and state in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa

from clonos.errors import ConfigurationError
from clonos.operators.async_operators import kind_for
from clonos.operators.process import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator
from clonos.operators.record_batches import ArrowIteratorOperator, BatchOperator, FrameIteratorOperator
from clonos.protocol.side_output import OutputName
from clonos.values.state_codec import disowned

_STATELESS: Final = {"map": MapOperator, "flat_map": FlatMapOperator, "filter": FilterOperator}
_OF_BUNDLES: Final = {
    kind.form: kind for kind in (BatchOperator, ArrowIteratorOperator, FrameIteratorOperator)
}


class RecordAtHand(Protocol):
    """With what its operator was told."""

    @property
    def operator(self) -> str: ...
    @property
    def form(self) -> str: ...
    @property
    def zone(self) -> str: ...

    def table(self) -> pa.Table:
        """The record, and the schema of the input that it came by."""

    def output_schema(self) -> pa.Schema: ...
    def side_schemas(self) -> Mapping[OutputName, pa.Schema]: ...


class StateInMemory:
    """Keyed state in memory."""

    def __init__(self, data: dict[bytes, Any]) -> None:
        self.data = data

    def get(self, key: bytes) -> Any | None:
        return self.data.get(key)

    def load(self, key: bytes) -> Any | None:
        value = self.get(key)
        return None if value is None else disowned(value)

    def put(self, key: bytes, value: Any) -> None:
        self.data[key] = value

    def save(self, key: bytes, value: Any) -> None:
        self.data[key] = disowned(value)

    def touch(self, key: bytes) -> None:
        """The object is the one that is kept."""

    def delete(self, key: bytes) -> None:
        self.data.pop(key, None)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, Any]]:
        return iter(sorted((key, value) for key, value in self.data.items() if key.startswith(prefix)))


def operator_of(record: RecordAtHand, fn: Callable[..., Any]) -> Any:
    """The operator that the function was given to. Raises ConfigurationError where there is none for one record."""
    schema, sides = record.output_schema(), record.side_schemas()
    given: dict[str, Any] = {"name": record.operator, "tz": record.zone, "side_outputs": sides}
    if record.form in ("process", "connect"):  # of two functions, the one that takes the record's input
        process = kind_for(ProcessOperator, [fn], record.operator, None)
        return process(fn, schema, on_timer=_not_here, **given)
    form, pure = record.form.removeprefix("pure "), record.form.startswith("pure ")
    if form in _OF_BUNDLES:  # the record as a bundle of one
        return _OF_BUNDLES[form](fn, schema, input=record.table().schema, pure=pure, **given)
    stateless = _STATELESS.get(form)
    if stateless is None:
        raise ConfigurationError(
            f"a record of {record.form} cannot be given to its function by itself",
            hint="`clonos log inspect` shows the row of a dead letter and the state of its key, and `clonos explain` "
            "how a row was made",
        )
    return kind_for(stateless, [fn], record.operator, None, pure=pure)(fn, schema, pure=pure, **given)


def _not_here(key: Any, timer: Any, ctx: Any) -> None:
    raise AssertionError("timers do not fire where one record is repeated")
