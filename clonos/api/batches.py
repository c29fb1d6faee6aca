"""Functions of whole bundles on a causal stream: `map_batches`, and PySpark's `mapInArrow` and `mapInPandas`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from clonos.errors import QueryDefinitionError
from clonos.extras import needs
from clonos.spark.plan import Binding
from clonos.spark.types import struct_type
from clonos.spark.versions import Previous

if TYPE_CHECKING:
    from clonos.api.streams import CausalStream


class FunctionsOfBatches:
    """What a causal stream has of them. They keep no state, and see no key."""

    def map_batches(
        self: Any,
        fn: Callable[..., Any],
        output: Any,
        *,
        name: str,
        version: str = "1",
        parallelism: int | None = None,
        pure: bool = False,
        recovery: str | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
        side_outputs: Mapping[str, Any] | None = None,
    ) -> CausalStream:
        """A bundle at a time, as Arrow: `fn(batch, ctx)`, or `fn(batch)` with `pure=True`, takes a
        `pyarrow.RecordBatch` and gives one, a `pyarrow.Table`, an iterable of them, or None. Columns go by name.

        How many rows a bundle has depends on what arrives together. That is recorded, so a replay is exact; but to give
        the same rows in another run, or as Spark, the function must not depend on it.
        """
        from clonos.operators.record_batches import BatchOperator

        return self._stateless(  # type: ignore[no-any-return]
            BatchOperator,
            fn,
            struct_type(output),
            Binding(name, version, parallelism, recovery=recovery, on_poison=on_poison),
            pure,
            previous,
            side_outputs,
            of_bundles=True,
        )

    def mapInArrow(
        self: Any,
        func: Callable[..., Any],
        schema: Any,
        barrier: bool = False,
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
    ) -> CausalStream:
        """PySpark's: `func(batches)` takes an iterator of `pyarrow.RecordBatch` and gives one. It is called once per
        bundle, with one batch. Without a `name` the operator is called after the function."""
        from clonos.operators.record_batches import ArrowIteratorOperator

        binding = _binding(func, name, version, parallelism, on_poison, barrier)
        given = (ArrowIteratorOperator, func, struct_type(schema), binding, False, previous, None)
        return self._stateless(*given, of_bundles=True)  # type: ignore[no-any-return]

    def mapInPandas(
        self: Any,
        func: Callable[..., Any],
        schema: Any,
        barrier: bool = False,
        *,
        name: str | None = None,
        version: str = "1",
        parallelism: int | None = None,
        on_poison: str = "fail",
        previous: Previous = None,
    ) -> CausalStream:
        """PySpark's: as `mapInArrow`, with pandas frames for batches."""
        from clonos.operators.record_batches import FrameIteratorOperator

        needs("pandas", "mapInPandas")
        binding = _binding(func, name, version, parallelism, on_poison, barrier)
        given = (FrameIteratorOperator, func, struct_type(schema), binding, False, previous, None)
        return self._stateless(*given, of_bundles=True)  # type: ignore[no-any-return]


def _binding(
    func: Any, name: str | None, version: str, parallelism: int | None, on_poison: str, barrier: bool
) -> Binding:
    binding = Binding.after(func, name, version, parallelism, on_poison=on_poison)
    if barrier:
        raise QueryDefinitionError(
            f"{binding.name!r} asks for a barrier, and instances of a causal operator do not wait for each other",
            hint="Leave barrier=True out",
        )
    return binding
