"""The operator that the arguments of `clonos classify` describe."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from clonos.api.streams import CausalStream
from clonos.errors import ConfigurationError
from clonos.testing.driver import stream

NAME: Final = "classified"


class Api(enum.Enum):
    """What the function is given to. The values are the names of the methods."""

    PROCESS = "process"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    GROUP_STATE = "applyInPandasWithState"
    TRANSFORM = "transformWithState"
    TRANSFORM_PANDAS = "transformWithStateInPandas"


def given_operator(
    found: Any,
    api: Api,
    named: str,
    *,
    schema: str | pa.Schema | None,
    key: Sequence[str],
    output: str | None,
    state: str | None,
    on_timer: Callable[..., Any] | None,
) -> CausalStream:
    """`found` is the object that is `named`: an operator as it is, or a function and what `api` needs besides.

    Raises ConfigurationError where something is missing.
    """
    if isinstance(found, CausalStream):
        return found
    if not callable(found):
        raise ConfigurationError(f"{named} is no function", hint="Give a function, a class or an operator")
    rows = stream(
        _struct_type(_needed(schema, "--schema", api, "it, or rows with --input, whose types are taken"))
    )
    name = str(getattr(found, "__name__", NAME))
    if api is Api.FILTER:
        return rows.filter(found, name=name)
    said = _needed(output, "--output", api, 'the schema of its output rows, such as "k string, n long"')
    if api is Api.MAP:
        return rows.map(found, said, name=name)
    if api is Api.FLAT_MAP:
        return rows.flat_map(found, said, name=name)
    grouped = rows.groupBy(*_needed(key, "--key", api, "the columns that its rows are grouped by"))
    if api is Api.PROCESS:
        return grouped.process(found, said, name=name, on_timer=on_timer)
    if api is Api.GROUP_STATE:
        kept = _needed(state, "--state", api, "the schema of its state")
        return grouped.applyInPandasWithState(found, said, kept, "update", "NoTimeout", name=name)
    transform = grouped.transformWithState if api is Api.TRANSFORM else grouped.transformWithStateInPandas
    return transform(found(), said, "Update", "None", name=name)


def _needed(given: Any, option: str, api: Api, what: str) -> Any:
    if not given:
        raise ConfigurationError(f"a function of {api.value} needs {option}", hint=f"Give {what}")
    return given


def _struct_type(schema: str | pa.Schema) -> Any:
    """As `stream` takes it: DDL, or a type of PySpark's."""
    if isinstance(schema, str):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
