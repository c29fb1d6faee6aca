"""A broadcast variable as a function in a replica has it."""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import Any, NoReturn, Protocol

from clonos.errors import QueryDefinitionError
from clonos.operators.intercept.active import unanswered
from clonos.operators.rows import seen_as

__all__ = ["BroadcastStore", "BroadcastVariable"]


class BroadcastStore(Protocol):
    """Where values are."""

    def load(self, name: str) -> bytes: ...


class BroadcastVariable:
    """Stands for PySpark's `Broadcast`, which works in Spark's own processes alone. The value is loaded when it is
    first asked for, once per process."""

    def __init__(self, store: BroadcastStore, name: str) -> None:
        self._store = store
        self._name = name

    @cached_property
    def value(self) -> Any:
        """Raises StorageUnavailable where it cannot be read."""
        return unanswered(self._load)

    def _load(self) -> Any:
        return pickle.loads(self._store.load(self._name))

    def unpersist(self, blocking: bool = False) -> NoReturn:
        """The driver's matter."""
        raise _of_the_driver("unpersist")

    def destroy(self, blocking: bool = False) -> NoReturn:
        """The driver's matter."""
        raise _of_the_driver("destroy")

    def __reduce__(self) -> tuple[Any, ...]:
        return (BroadcastVariable, (self._store, self._name))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """For `isinstance(variable, Broadcast)`, without importing pyspark into processes that do not need it."""
        return seen_as("pyspark.core.broadcast", "Broadcast", type(self))


def _of_the_driver(method: str) -> QueryDefinitionError:
    return QueryDefinitionError(
        f"{method}() of a broadcast variable was called in a function of an operator",
        hint="Call it on the driver, where the variable was made",
    )
