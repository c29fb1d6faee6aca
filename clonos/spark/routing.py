"""The source side of routing: destinations as Spark expressions.

The twin of `clonos.protocol.destination`: CRC-32 over the canonical text of the key, modulo the parallelism. Both are
tested against each other for every type that may be a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clonos.errors import QueryDefinitionError
from clonos.protocol.destination import NULL, SEPARATOR
from clonos.spark.types import quoted

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def canonical_text(column: Any, kind: str, name: str) -> Any:
    """The canonical text of a key column, as a Spark expression."""
    from pyspark.sql import functions as f

    return f.coalesce(_writer(kind, name)(column), f.lit(NULL))


def _writer(kind: str, name: str) -> Callable[[Any], Any]:
    """What writes the text of a column that is not null. Needs no JVM until it is called."""
    from pyspark.sql import functions as f

    if kind == "string":
        return lambda column: column
    if kind == "boolean" or kind in _INTEGERS or (kind.startswith("decimal") and kind.endswith(",0)")):
        return lambda column: column.cast("string")
    if kind == "date":
        return lambda column: f.unix_date(column).cast("string")
    if kind == "timestamp":
        return lambda column: f.unix_micros(column).cast("string")
    if kind == "binary":
        return lambda column: f.lower(f.hex(column))
    raise QueryDefinitionError(
        f"column {name!r} of type {kind} cannot be a key: it has no text that every language agrees on",
        hint="Group by a string, integer, boolean, date, timestamp or binary column; cast floating-point numbers "
        "and decimals to string first",
    )


def check_key_types(schema: Any, key: Sequence[str]) -> None:
    """Refuse keys that cannot be routed, naming the column."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in key:
        if name not in kinds:
            raise QueryDefinitionError(f"there is no column {name!r}; there are {', '.join(kinds)}")
        _writer(kinds[name], name)


def by_key(schema: Any, key: Sequence[str], parallelism: int) -> Any:
    """The destination of a row by its key."""
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    texts = [canonical_text(f.col(quoted(name)), kinds[name], name) for name in key]
    text = texts[0] if len(texts) == 1 else f.concat_ws(SEPARATOR, *texts)
    return f.pmod(f.crc32(text.cast("binary")), f.lit(parallelism)).cast("int")


def by_channel(channel: Any, parallelism: int) -> Any:
    """The destination of a row by its source partition."""
    from pyspark.sql import functions as f

    return f.pmod(channel, f.lit(parallelism)).cast("int")
