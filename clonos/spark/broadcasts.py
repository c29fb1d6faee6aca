"""The broadcast variables that the functions of a query use, at the driver."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any, Final

from clonos.errors import QueryDefinitionError
from clonos.operators.broadcast import BroadcastVariable
from clonos.storage.broadcast_values import BroadcastValues, digest_of

_ANOTHER: Final = (b"broadcast", b"_from_id")
"""What the pickle of a value has where it refers to a broadcast variable: the name of PySpark's function."""


class Broadcasts:
    """Those that were found in functions. A value's name comes from the value alone: where Spark keeps it, and under
    which number, differs from start to start."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[str, Any]] = {}

    def shared(self, variable: Any, checkpoint: str) -> BroadcastVariable:
        """What is pickled in place of PySpark's. Raises QueryDefinitionError where its value is gone."""
        if id(variable) not in self._found:
            raw = _pickled(variable)
            if all(part in raw for part in _ANOTHER):
                raise QueryDefinitionError(
                    "the value of a broadcast variable holds another broadcast variable, which is known in Spark's own "
                    "processes alone",
                    hint="Use the two side by side in the function, or broadcast their values together",
                )
            self._found[id(variable)] = digest_of(raw), variable
        return BroadcastVariable(BroadcastValues(checkpoint), self._found[id(variable)][0])

    def publish(self, checkpoint: str, *, keeps_others: bool) -> None:
        """All of them are in the checkpoint afterwards. Raises StorageUnavailable and QueryDefinitionError."""
        values = {name: partial(_pickled, variable) for name, variable in self._found.values()}
        BroadcastValues(checkpoint).keep(values, and_others=keeps_others)


def _pickled(variable: Any) -> bytes:
    """As Spark keeps it in a file, unless that is encrypted."""
    try:
        if variable._sc._encryption_enabled:
            return pickle.dumps(variable.value, pickle.HIGHEST_PROTOCOL)
        return Path(variable._path).read_bytes()
    except Exception as error:  # of the JVM's, too
        raise QueryDefinitionError(
            f"a broadcast variable whose value is not there any more: {error}",
            hint="Was it destroyed, or its SparkContext stopped? Call spark.sparkContext.broadcast(value) again",
        ) from error
