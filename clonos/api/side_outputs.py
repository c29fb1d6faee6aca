"""The side outputs that an operator declares: `side_outputs={"late": schema, ...}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.types import arrow_schema
from clonos.spark.plan import check_name
from clonos.spark.types import struct_type


def side_schemas(given: Any, operator: str) -> dict[str, Any]:
    """Their schemas, as StructTypes. Raises QueryDefinitionError where `given` is neither a mapping nor None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise QueryDefinitionError(
            f"the side outputs of {operator!r} are a {type(given).__name__}; they are a dict of names and schemas",
            hint='Write side_outputs={"late": "id long, at timestamp"}',
        )
    for name in given:
        check_name(name, f"a side output's (of {operator!r})")
    return {name: struct_type(schema) for name, schema in given.items()}


def arrow_schemas(schemas: Mapping[str, Any]) -> dict[str, pa.Schema]:
    return {name: arrow_schema(schema) for name, schema in schemas.items()}
