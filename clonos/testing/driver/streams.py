"""Causal streams that have a schema and no rows: what an operator under test is defined on."""

from __future__ import annotations

from typing import Any

from clonos.api.streams import CausalStream
from clonos.spark.types import check_columns, struct_type

__all__ = ["stream"]


def stream(schema: Any, *, timezone: str = "UTC") -> CausalStream:
    """A causal stream to define an operator on, as on `clonos.causal(df)`.

    `schema` is that of the rows that the operator gets: a PySpark `StructType`, or DDL such as
    "card string, amount double". `timezone` stands for the session's (`spark.sql.session.timeZone`).
    Needs no SparkSession. Raises QueryDefinitionError where the schema cannot be read.
    """
    session = _NoSession(timezone)
    given = struct_type(schema)
    check_columns(given, "the stream", session)
    return CausalStream(session, (), given)


class _NoSession:
    """What the definition of an operator asks of a Spark session."""

    _jvm = None

    def __init__(self, timezone: str) -> None:
        self._settings = {"spark.sql.session.timeZone": timezone}

    @property
    def conf(self) -> dict[str, str]:
        return self._settings
