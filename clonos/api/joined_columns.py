"""The columns of a join: those of the key, the left side's others, the right side's others."""

from __future__ import annotations

from typing import Any

from clonos.errors import QueryDefinitionError

Key = tuple[str, ...]


def others(schema: Any, key: Key) -> Key:
    """The columns that are not of the key."""
    return tuple(name for name in schema.names if name not in key)


def joined_columns(
    left: tuple[Any, Key], right: tuple[Any, Key] | None, *, outer: bool, said: str, hint: str
) -> Any:
    """As a StructType, of the two sides' schemas and keys; without a right one where nothing of it is given out.
    `outer`: it may be missing. Raises QueryDefinitionError where both sides have a column of one name; `said` names
    them, `hint` says what to do."""
    from pyspark.sql.types import StructField, StructType

    mine, key = left
    fields = [mine[column] for column in (*key, *others(*left))]
    more = [] if right is None else [right[0][column] for column in others(*right)]
    twice = sorted({field.name.lower() for field in fields} & {field.name.lower() for field in more})
    if twice:
        raise QueryDefinitionError(
            f"{said} have a column {twice[0]!r} that they are not joined on", hint=hint
        )
    nullable = [StructField(field.name, field.dataType, field.nullable or outer) for field in more]
    return StructType([*fields, *nullable])
