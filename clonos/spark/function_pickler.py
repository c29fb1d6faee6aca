"""User functions on their way to replicas: pickled as Spark pickles its own, but for objects that are Spark's.

A broadcast variable becomes one that works in a replica. An accumulator, and what belongs to the driver, such as the
session or a DataFrame, would do nothing there, or something else than is meant: a function that holds one is refused.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from clonos.errors import ClonosError, QueryDefinitionError
from clonos.operators.broadcast import BroadcastVariable

Shared = Callable[[Any], BroadcastVariable]
"""From PySpark's broadcast variable to what stands for it."""

_OF_THE_DRIVER = "is the driver's, and is not there in the processes that run the function"
_AS_ROWS = (
    "Read it into a value before, collect() for one, or join the stream with it: stream.join(table, on)"
)
_AS_A_VALUE = "Take what the function needs of it into a variable before, and use that"


class _Refused(NamedTuple):
    """Objects of a class: what they are, why no function may hold one, and what to do instead."""

    kind: type | tuple[type, ...]
    what: str
    why: str
    hint: str


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, shared: Shared) -> None:
        super().__init__(file)
        self._shared = shared

    def reducer_override(self, obj: Any) -> Any:
        from pyspark.core.broadcast import Broadcast

        if type(obj) is Broadcast:
            return self._shared(obj).__reduce__()
        if type(obj) in _METHODS and (name := _of_hidden_generator(obj)) is not None:
            return getattr, (import_module(name[0]), name[1])
        for refused in _refused():
            if isinstance(obj, refused.kind):
                raise QueryDefinitionError(
                    f"{refused.what} ({_shown(obj)}), which {refused.why}", hint=refused.hint
                )
        return super().reducer_override(obj)


_GENERATORS: Mapping[str, Any] = {"random": getattr(random, "_inst"), "numpy.random": np.random.mtrand._rand}  # noqa: B009
_METHODS = frozenset(map(type, (random.random, random.choice, np.random.random)))


def _of_hidden_generator(method: Any) -> tuple[str, str] | None:
    """Of `from random import random` and its like the module and the name there. They are methods of a generator, which
    would be pickled with them: each process would begin where the driver's generator stands."""
    for module, generator in _GENERATORS.items():
        if method.__self__ is generator and hasattr(import_module(module), method.__name__):
            return module, method.__name__
    return None


def pickled(what: Any, name: str, shared: Shared) -> bytes:
    """The function or sink called `name`. Raises QueryDefinitionError."""
    with io.BytesIO() as file:
        try:
            _Pickler(file, shared).dump(what)
        except ClonosError as error:
            raise QueryDefinitionError(
                f"the function or sink of {name!r} uses {error.message}", hint=error.hint
            ) from None
        except Exception as error:
            raise QueryDefinitionError(
                f"the function or sink of {name!r} cannot be pickled: {error}",
                hint="Open connections, locks and files inside the function, not outside of it",
            ) from error
        return file.getvalue()


@lru_cache(maxsize=1)
def _refused() -> tuple[_Refused, ...]:
    from py4j.java_gateway import JavaClass, JavaGateway, JavaObject, JVMView
    from pyspark import RDD, SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.udf import UserDefinedFunction

    return (
        _Refused(
            Accumulator,
            "an accumulator",
            "no replica can add to: a replay would add again, and the driver would not hear of it",
            "Count in ctx.state behind groupBy(...), or give the counts as rows, of a side output for one",
        ),
        _Refused(SparkSession, "the SparkSession", _OF_THE_DRIVER, _AS_ROWS),
        _Refused(SparkContext, "the SparkContext", _OF_THE_DRIVER, _AS_ROWS),
        _Refused((DataFrame, GroupedData), "a DataFrame", _OF_THE_DRIVER, _AS_ROWS),
        _Refused(RDD, "an RDD", _OF_THE_DRIVER, _AS_ROWS),
        _Refused(
            UserDefinedFunction,
            "a function that was made a UDF",
            "makes a Column, which only Spark evaluates",
            "Use the function itself: that of a UDF is udf.func",
        ),
        _Refused(
            Column,
            "a Column",
            "only Spark evaluates",
            "Use select() or where() on the stream, or write it in Python",
        ),
        _Refused(StreamingQuery, "a streaming query", _OF_THE_DRIVER, _AS_A_VALUE),
        _Refused(
            (JavaObject, JavaClass, JVMView, JavaGateway), "an object of the JVM", _OF_THE_DRIVER, _AS_A_VALUE
        ),
    )


def _shown(obj: Any) -> str:
    try:
        text = repr(obj)
    except Exception:
        text = type(obj).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
