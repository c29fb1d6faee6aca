"""The errors that PySpark raises for misuse of its stateful APIs, so that code that catches them keeps working.

pyspark is imported only when one is raised: a replica does not need it otherwise.
"""

from __future__ import annotations


def spark_error(kind: type[Exception], error_class: str, **parameters: str) -> Exception:
    """`PySparkValueError` and its kin, by the builtin they derive from."""
    try:
        from pyspark.errors import PySparkRuntimeError, PySparkTypeError, PySparkValueError
    except ImportError:
        return kind(f"[{error_class}] {parameters}")
    made = {ValueError: PySparkValueError, TypeError: PySparkTypeError, RuntimeError: PySparkRuntimeError}[
        kind
    ]
    return made(errorClass=error_class, messageParameters=parameters)


def spark_runtime_error(text: str) -> Exception:
    """A `PySparkRuntimeError` without an error class, as Spark's state variables raise it."""
    try:
        from pyspark.errors import PySparkRuntimeError
    except ImportError:
        return RuntimeError(text)
    return PySparkRuntimeError(text)
