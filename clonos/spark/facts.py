"""What a checkpoint is bound to, as it is read off a query: columns, form, state, time, source, session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cloudpickle

from clonos.errors import QueryDefinitionError
from clonos.operators.broadcast import BroadcastVariable
from clonos.operators.types import columns_of
from clonos.protocol.topology import Column, Columns, StateVariable
from clonos.protocol.versions.binding import PLACES
from clonos.spark.function_pickler import pickled
from clonos.spark.location import source_path
from clonos.spark.plan import TablePlan
from clonos.storage.broadcast_values import BroadcastValues

STATELESS = "stateless"
SETTINGS = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.timestampType",
)
"""Settings of the session that change the values which expressions before `causal()` give for the same bytes."""

INTERCEPT = "spark.clonos.intercept"
"""Bound only where it is on: checkpoints of older versions, which do not say it, are of programs without it."""

READ_OPTIONS = (
    "dateFormat",
    "encoding",
    "mode",
    "multiLine",
    "primitivesAsString",
    "timestampFormat",
    "timestampNTZFormat",
    "timeZone",
)
"""Options of a source that change the values of its records."""


def columns(schema: Any) -> Columns:
    """The columns of a StructType."""
    return tuple(Column(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields)


def form_of(operator: Any) -> str:
    """The methods that keep no state may stand for each other."""
    return operator.form if hasattr(operator, "migrate") else STATELESS


def migrates(operator: Any) -> frozenset[str]:
    """The state variables that it brings up to date from those of another version."""
    found: frozenset[str] = getattr(operator, "migrates", frozenset())
    return found


def timeout_of(operator: Any) -> str:
    return str(getattr(operator, "timeout", ""))


def per_of(operator: Any) -> str:
    """What a call covers, where that can be chosen."""
    return str(getattr(operator, "per", ""))


def initial_state_of(table: TablePlan | None) -> Columns:
    """The columns of what its keys begin with; none where it is a table beside the stream, or there is none."""
    return columns_of(table.schema) if table is not None and table.key else ()


def state_of(operator: Any, name: str) -> tuple[StateVariable, ...] | None:
    """What it declares to keep; None where that cannot be known here, on the driver. Raises QueryDefinitionError where
    nothing may be declared like that."""
    declared = getattr(operator, "declared", None)
    if declared is None:
        return ()
    try:
        raw = pickled(operator, name, lambda variable: BroadcastVariable(BroadcastValues(""), ""))
        said: tuple[StateVariable, ...] = cloudpickle.loads(raw).declared()
    except QueryDefinitionError:
        raise
    except Exception:  # what is wrong with it shows where it runs
        return None
    return said


def session_settings(spark: Any, *, intercept: bool) -> dict[str, str]:
    """`intercept` changes what steps record, so that a program with it does not repeat one without."""
    found = {name: str(spark.conf.get(name)) for name in SETTINGS}
    return found | {INTERCEPT: "true"} if intercept else found


def described(df: Any, channel: Any, position: Any) -> dict[str, str]:
    """The sources of a streaming DataFrame: their kind, where they are, what is read how, and the user's own columns
    for a record's place."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    found: dict[str, list[str]] = {}
    for leaf in map(leaves.apply, range(leaves.size())):
        options = _options(leaf)
        found.setdefault("kind", []).append(kind_of(leaf))
        for name in (*PLACES, *READ_OPTIONS):
            if name in options:
                said = options[name]
                if name == "path":
                    said = source_path(df.sparkSession, said, embedded=kind_of(leaf) == "clonos").rstrip("/")
                found.setdefault(name, []).append(said)
    for what, column in (("channel", channel), ("position", position)):
        if column is not None:
            found[what] = [column if isinstance(column, str) else str(column)]
    return {name: ";".join(said) for name, said in found.items()}


def kind_of(leaf: Any) -> str:
    """Of a leaf of a plan: the source's name, or that of the node."""
    try:
        return str(leaf.sourceName())
    except Exception:  # a leaf that is no streaming source, such as a table joined to the stream
        return str(leaf.nodeName())


def _options(leaf: Any) -> Mapping[str, str]:
    """Those that are known here, in the spelling of here, for Spark does not mind the case."""
    spelt = {name.lower(): name for name in (*PLACES, *READ_OPTIONS)}
    return {spelt[name]: value for name, value in options_of(leaf).items() if name in spelt}


def options_of(leaf: Any) -> Mapping[str, str]:
    """Of a leaf of a plan that is a source, as the user gave them, names in lower case."""
    try:
        given = leaf.extraOptions()
        return {str(name).lower(): str(given.get(name)) for name in given.keySet()}
    except Exception:
        try:
            pairs = leaf.dataSource().options().toSeq()
            read = map(pairs.apply, range(pairs.size()))
            return {str(pair._1()).lower(): str(pair._2()) for pair in read}
        except Exception:
            return {}
