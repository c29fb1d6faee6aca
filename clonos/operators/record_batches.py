"""Functions of whole bundles: `map_batches`, and `mapInArrow` and `mapInPandas` as PySpark has them.

A bundle becomes one record batch, or one frame, and the function is called once for it. Which records make a bundle is
recorded, so a replay gives the function the same batches. What the function gives is taken at once, batch by batch: a
generator may change an array that it has yielded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from clonos.errors import InputError
from clonos.operators.arrow_columns import BatchMaker, BatchReader
from clonos.operators.frames import FrameMaker, FrameReader
from clonos.operators.process import Stateless

__all__ = ["ArrowIteratorOperator", "BatchOperator", "FrameIteratorOperator"]

_Row = tuple[Any, ...]


class _OfBundles(Stateless):
    """`_call` gives what the function returns for the rows of a bundle."""

    record_at_a_time = False
    due = ""
    """What the function gives, in messages."""

    def __init__(
        self,
        fn: Callable[..., Any],
        output: pa.Schema,
        *,
        input: pa.Schema,
        name: str,
        pure: bool = False,
        tz: str | None = "UTC",
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> None:
        super().__init__(fn, output, name=name, pure=pure, tz=tz, side_outputs=side_outputs)

    def _run(self, left: Any, rows: list[_Row]) -> list[_Row]:
        made = self._side_outputs.begin()
        for each in self._parts(self._call(rows)):
            made += self._taken(each)
        return self._side_outputs.settle(made, self._outputs)

    def _parts(self, given: Any) -> Iterable[Any]:
        if given is None:
            return ()
        lone = hasattr(given, "__dataframe__")  # a table of some kind: its columns can be iterated
        if lone or isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
            raise self._refused(given)
        return given

    def _refused(self, given: Any) -> InputError:
        return InputError(
            f"{self._name!r} gave a {type(given).__name__}",
            hint=f"Return or yield {self.due}, or return None",
        )

    def _call(self, rows: list[_Row]) -> Any:
        raise NotImplementedError

    def _taken(self, each: Any) -> list[_Row]:
        raise NotImplementedError


class _OfBatches(_OfBundles):
    """A bundle is a `pyarrow.RecordBatch`."""

    due = "pyarrow.RecordBatch objects"

    def __init__(
        self, fn: Callable[..., Any], output: pa.Schema, *, input: pa.Schema, name: str, **more: Any
    ) -> None:
        super().__init__(fn, output, input=input, name=name, **more)
        self._maker = BatchMaker(input, more.get("tz", "UTC"))
        self._reader = BatchReader(output, more.get("tz", "UTC"), name)

    def _taken(self, each: Any) -> list[_Row]:
        if not isinstance(each, pa.RecordBatch | pa.Table):
            raise self._refused(each)
        return self._reader.rows(each)


class BatchOperator(_OfBatches):
    """`fn(batch, ctx)`, or `fn(batch)` when pure, gives a batch, a table, an iterable of them, or None."""

    form = "map_batches"

    def _call(self, rows: list[_Row]) -> Any:
        batch = self._maker.batch(rows)
        return self._fn(batch) if self._pure else self._fn(batch, self._ctx)

    def _parts(self, given: Any) -> Iterable[Any]:
        return (given,) if isinstance(given, pa.RecordBatch | pa.Table) else super()._parts(given)


class ArrowIteratorOperator(_OfBatches):
    """PySpark's `mapInArrow`: `fn(batches)` takes an iterator, here of one batch, and gives one."""

    form = "mapInArrow"

    def _call(self, rows: list[_Row]) -> Any:
        return self._fn(iter((self._maker.batch(rows),)))


class FrameIteratorOperator(_OfBundles):
    """PySpark's `mapInPandas`: `fn(frames)` takes an iterator, here of one frame, and gives one."""

    form = "mapInPandas"
    due = "pandas.DataFrame objects"

    def __init__(
        self, fn: Callable[..., Any], output: pa.Schema, *, input: pa.Schema, name: str, **more: Any
    ) -> None:
        super().__init__(fn, output, input=input, name=name, **more)
        self._maker = FrameMaker(input, more.get("tz", "UTC"), of_one_struct=True)
        self._reader = FrameReader(output, more.get("tz", "UTC"), name)

    def _call(self, rows: list[_Row]) -> Any:
        return self._fn(self._maker.split([rows]))

    def _taken(self, each: Any) -> list[_Row]:
        return self._reader.rows(each)
