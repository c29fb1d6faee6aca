"""Which datasets a DataFrame reads, and from which of their columns its own come, as Spark's analysed plan has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from clonos.operators.column_flow import Flow, Transformation, columns_named, identity, of_expression, through
from clonos.operators.expressions.tree import COLUMN, Expression
from clonos.spark.before_causal import items
from clonos.spark.facts import kind_of, options_of
from clonos.spark.location import source_path
from clonos.spark.openlineage.naming import DatasetName, at_uri, file_at, kafka_topic, sql_table, sqlite_table

Topics = Callable[[], Iterable[str]]
"""The topics that a pattern stands for."""

_PASSES: Final = frozenset({"SubqueryAlias", "View", "EventTimeWatermark", "CollectMetrics", "Repartition"})


class Column(NamedTuple):
    """A column of a dataset."""

    dataset: DatasetName
    name: str


@dataclass(frozen=True, slots=True)
class Read:
    """What a DataFrame reads. `schema` is the StructType of what is read, before anything is done with it; `columns`
    say of each column of the DataFrame where it comes from (None: not known), `rows` which others choose its rows."""

    datasets: tuple[DatasetName, ...] = ()
    schema: Any = None
    columns: tuple[Flow[Column] | None, ...] = ()
    rows: Flow[Column] = frozenset()


@dataclass
class _Flows:
    """By the ids that Spark gives columns."""

    columns: dict[int, Flow[Column] | None] = field(default_factory=dict)
    rows: Flow[Column] = frozenset()


def read_by(df: Any, topics: Topics = lambda: ()) -> Read:
    """Of a DataFrame over one source."""
    plan = df._jdf.queryExecution().analyzed()
    leaves = list(items(plan.collectLeaves()))
    if len(leaves) != 1:
        return Read(columns=(None,) * len(df.columns))
    datasets = tuple(_datasets(df.sparkSession, leaves[0], topics))
    flows = _Flows()
    _follow(plan, datasets, flows)
    columns = tuple(flows.columns.get(_id(each)) for each in items(plan.output()))
    return Read(datasets, _schema(leaves[0]), columns, flows.rows)


def _schema(leaf: Any) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(leaf.schema().json()))


# ------------------------------------------------------------------- datasets


def _datasets(spark: Any, leaf: Any, topics: Topics) -> list[DatasetName]:
    """None where it has no name that others know, as the source `rate`."""
    kind, options = kind_of(leaf), options_of(leaf)
    if kind == "kafka":
        servers = options.get("kafka.bootstrap.servers", "")
        return [kafka_topic(servers, topic) for topic in _topics(options, topics)] if servers else []
    if kind == "clonos":
        return [file_at(source_path(spark, options.get("path", ""), embedded=True))]
    if kind == "LogicalRelation":
        return _of_table(leaf.relation())
    if kind.startswith("FileSource") or kind == "delta":
        found = at_uri(source_path(spark, options["path"], embedded=False)) if "path" in options else None
        return [] if found is None else [found]
    return []


def _topics(options: Mapping[str, str], topics: Topics) -> list[str]:
    if "assign" in options:
        return sorted(json.loads(options["assign"]))
    if "subscribe" in options:
        return sorted({topic for one in options["subscribe"].split(",") if (topic := one.strip())})
    return sorted(topics())


def _of_table(relation: Any) -> list[DatasetName]:
    """A table beside a stream: files, or one that is read over JDBC."""
    if relation.getClass().getSimpleName() == "HadoopFsRelation":
        paths = (at_uri(str(path.toString())) for path in items(relation.location().rootPaths()))
        return [path for path in paths if path is not None]
    if relation.getClass().getSimpleName() == "JDBCRelation":
        options = relation.jdbcOptions()
        found = jdbc_table(str(options.url()), str(options.tableOrQuery()))
        return [] if found is None else [found]
    return []


def jdbc_table(url: str, table: str) -> DatasetName | None:
    """None of a query instead of a table, of databases that are not known, and of several servers."""
    backend, _, rest = url.removeprefix("jdbc:").partition(":")
    table = table.strip().replace('"', "").replace("`", "")
    if table.startswith("("):
        return None
    if backend == "sqlite":
        return sqlite_table(rest, table)
    parts = urlsplit(f"//{rest.removeprefix('//')}")
    schema = dict(parse_qsl(parts.query)).get("currentSchema", "")
    if schema and "." not in table:
        table = f"{schema.split(',')[0]}.{table}"
    try:
        return sql_table(backend, parts.hostname, parts.port, parts.path.strip("/"), table)
    except ValueError:  # several servers
        return None


# -------------------------------------------------------------------- columns


def _follow(plan: Any, datasets: tuple[DatasetName, ...], flows: _Flows) -> None:
    """Fills `flows`, from the source up. What a node does that is not known gives columns of which nothing is."""
    name = str(plan.nodeName())
    children = list(items(plan.children()))
    if not children:
        for each in items(plan.output()):
            own = [identity(Column(dataset, str(each.name()))) for dataset in datasets]
            flows.columns[_id(each)] = frozenset().union(*own) if own else None
        return
    for child in children:
        _follow(child, datasets, flows)
    if name == "Project":
        for each in items(plan.projectList()):
            flows.columns[_id(each)] = of_expression(_as_value(each), flows.columns.get)
    elif name == "Filter":
        chosen = columns_named(_as_value(plan.condition()))
        for of in filter(None, map(flows.columns.get, chosen)):
            flows.rows |= through(of, Transformation.FILTER)
    elif name not in _PASSES:
        for each in items(plan.output()):
            flows.columns[_id(each)] = None


def _id(expression: Any) -> int:
    return int(expression.exprId().id())


def _as_value(expression: Any) -> Expression:
    """An expression of Spark's, as far as it matters which columns it names, and where: these by their ids."""
    op = str(expression.getClass().getSimpleName())
    if op == "Alias":
        return _as_value(expression.child())
    if op == "AttributeReference":
        return Expression(COLUMN, "", (), (("index", _id(expression)),))
    return Expression(op, "", tuple(map(_as_value, items(expression.children()))))
