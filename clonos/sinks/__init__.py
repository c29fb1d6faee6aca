"""Where rows leave Clonos. Each constructor below describes a sink; `docs/sinks.md` says what each one guarantees.
`StoreSink` is what a sink of your own is made of; see `docs/write-a-sink.md`.

Nothing is imported until it is used: a query that writes files needs no database driver.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from clonos.errors import ConfigurationError
from clonos.extras import needs

if TYPE_CHECKING:
    from clonos.sinks.batch_sink import BatchSink
    from clonos.sinks.call_sink import CallableSink
    from clonos.sinks.delta_sink import DeltaSink
    from clonos.sinks.iceberg_sink import IcebergSink
    from clonos.sinks.jsonl_sink import JsonlSink
    from clonos.sinks.kafka_sink import KafkaSink
    from clonos.sinks.log_sink import LogSink
    from clonos.sinks.object_sink import ObjectSink
    from clonos.sinks.redis_sink import RedisSink
    from clonos.sinks.sql_sink import SqlSink
    from clonos.sinks.store import Store, StoreSink

__all__ = [
    "BatchSink",
    "CallableSink",
    "DeltaSink",
    "IcebergSink",
    "JsonlSink",
    "KafkaSink",
    "LogSink",
    "ObjectSink",
    "RedisSink",
    "SqlSink",
    "Store",
    "StoreSink",
    "batches",
    "call",
    "delta",
    "iceberg",
    "jsonl",
    "kafka",
    "log",
    "parquet",
    "redis",
    "sql",
]

_CLASSES = {
    "BatchSink": "clonos.sinks.batch_sink",
    "CallableSink": "clonos.sinks.call_sink",
    "DeltaSink": "clonos.sinks.delta_sink",
    "IcebergSink": "clonos.sinks.iceberg_sink",
    "JsonlSink": "clonos.sinks.jsonl_sink",
    "KafkaSink": "clonos.sinks.kafka_sink",
    "LogSink": "clonos.sinks.log_sink",
    "ObjectSink": "clonos.sinks.object_sink",
    "RedisSink": "clonos.sinks.redis_sink",
    "SqlSink": "clonos.sinks.sql_sink",
    "Store": "clonos.sinks.store",
    "StoreSink": "clonos.sinks.store",
}


def sql(
    url: str,
    table: str,
    *,
    mode: Literal["insert", "upsert"] = "insert",
    key: str | Sequence[str] | None = None,
    delete: str | None = None,
    create: bool = True,
    columns: Mapping[str, str] | None = None,
    id_column: str = "clonos_id",
    id_prefix: str = "",
    patience: float = 30.0,
    durable: bool = True,
) -> SqlSink:
    """Rows into a table of SQLite, PostgreSQL or MySQL; see `SqlSink`. Raises ConfigurationError without SQLAlchemy."""
    needs("sqlalchemy", "a SQL sink")
    from clonos.sinks.sql_sink import SqlSink

    return SqlSink(
        url,
        table,
        mode=mode,
        key=key,
        delete=delete,
        create=create,
        columns=columns,
        id_column=id_column,
        id_prefix=id_prefix,
        patience=patience,
        durable=durable,
    )


def jsonl(
    path: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    id_column: str = "clonos_id",
    patience: float = 30.0,
    durable: bool = True,
) -> JsonlSink | ObjectSink:
    """Rows as JSON Lines: into files of a folder, see `JsonlSink`, or into an object store (`s3://bucket/path`), see
    `ObjectSink`, to which `options` belong. Raises ConfigurationError for an object store without obstore."""
    from clonos.sinks.object_url import is_object_url

    if is_object_url(path):
        return _objects(str(path), "jsonl", options, id_column, patience)
    if options is not None:
        raise ConfigurationError(
            f"{path!r} is a folder, which has no options",
            hint="Leave them out, or give the URL of an object store",
        )
    from clonos.sinks.jsonl_sink import JsonlSink

    return JsonlSink(path, id_column=id_column, patience=patience, durable=durable)


def parquet(
    url: str,
    *,
    options: Mapping[str, Any] | None = None,
    id_column: str = "clonos_id",
    patience: float = 30.0,
) -> ObjectSink:
    """Rows as Parquet files in an object store (`s3://bucket/path`); see `ObjectSink`. Raises ConfigurationError where
    obstore is not installed."""
    return _objects(url, "parquet", options, id_column, patience)


def _objects(
    url: str,
    form: Literal["jsonl", "parquet"],
    options: Mapping[str, Any] | None,
    id_column: str,
    patience: float,
) -> ObjectSink:
    needs("obstore", "a sink in an object store")
    from clonos.sinks.object_sink import ObjectSink

    return ObjectSink(url, form, options=options, id_column=id_column, patience=patience)


def kafka(
    servers: str,
    *,
    topic: str,
    key: str | Sequence[str] | None = None,
    value: str | None = None,
    headers: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    prefix: str = "clonos-",
    patience: float = 30.0,
    mode: Literal["transactions", "at_once"] = "transactions",
) -> KafkaSink:
    """Rows into a topic of Kafka; see `KafkaSink`. Raises ConfigurationError without confluent-kafka."""
    needs("confluent_kafka", "a Kafka sink")
    from clonos.sinks.kafka_sink import KafkaSink

    return KafkaSink(
        servers,
        topic=topic,
        key=key,
        value=value,
        headers=headers,
        options=options,
        prefix=prefix,
        patience=patience,
        mode=mode,
    )


def log(
    path: str | os.PathLike[str],
    partitions: int = 1,
    *,
    id_column: str = "clonos_id",
    patience: float = 30.0,
    durable: bool = True,
) -> LogSink:
    """Rows into an embedded log, which is the source of another query; see `LogSink`."""
    from clonos.sinks.log_sink import LogSink

    return LogSink(path, partitions, id_column=id_column, patience=patience, durable=durable)


def redis(
    url: str,
    name: str,
    *,
    mode: Literal["stream", "upsert"] = "stream",
    key: str | Sequence[str] | None = None,
    id_field: str = "clonos_id",
    maxlen: int | None = None,
    cluster: bool = False,
    replicas: int = 0,
    options: Mapping[str, Any] | None = None,
    patience: float = 30.0,
    durable: bool = True,
) -> RedisSink:
    """Rows into a stream of Redis, or into hashes; see `RedisSink`. Raises ConfigurationError without redis-py."""
    needs("redis", "a Redis sink")
    from clonos.sinks.redis_sink import RedisSink

    return RedisSink(
        url,
        name,
        mode=mode,
        key=key,
        id_field=id_field,
        maxlen=maxlen,
        cluster=cluster,
        replicas=replicas,
        options=options,
        patience=patience,
        durable=durable,
    )


def delta(
    path: str | os.PathLike[str],
    *,
    id_column: str = "clonos_id",
    patience: float = 30.0,
    durable: bool = True,
) -> DeltaSink:
    """Rows into a table of Delta Lake; see `DeltaSink`. Raises ConfigurationError without deltalake."""
    needs("deltalake", "a Delta sink")
    from clonos.sinks.delta_sink import DeltaSink

    return DeltaSink(path, id_column=id_column, patience=patience, durable=durable)


def iceberg(
    table: str,
    catalog: str | Mapping[str, str] = "default",
    *,
    id_column: str = "clonos_id",
    patience: float = 30.0,
) -> IcebergSink:
    """Rows into a table of Iceberg; see `IcebergSink`. Raises ConfigurationError without pyiceberg."""
    needs("pyiceberg", "an Iceberg sink")
    from clonos.sinks.iceberg_sink import IcebergSink

    return IcebergSink(table, catalog, id_column=id_column, patience=patience)


def batches(
    fn: Callable[[Any, int], object],
    *,
    path: str | os.PathLike[str] | None = None,
    patience: float = 30.0,
    durable: bool = True,
) -> BatchSink:
    """Rows to a function `fn(df, batch_id)` of the driver, as `writeStream.foreachBatch(fn)`; see `BatchSink`."""
    from clonos.sinks.batch_sink import BatchSink

    return BatchSink(fn, path=path, patience=patience, durable=durable)


def call(
    write: Callable[[list[Any], list[str]], object],
    *,
    mode: Literal["idempotent", "checkable"] = "idempotent",
    last_written: Callable[[int], int | None] | None = None,
    path: str | os.PathLike[str] | None = None,
    id_prefix: str | None = None,
    retry: tuple[type[Exception], ...] = (OSError,),
    patience: float = 30.0,
    durable: bool = True,
) -> CallableSink:
    """Rows to a function `write(rows, ids)`; see `CallableSink`."""
    from clonos.sinks.call_sink import CallableSink

    return CallableSink(
        write,
        mode=mode,
        last_written=last_written,
        path=path,
        id_prefix=id_prefix,
        retry=retry,
        patience=patience,
        durable=durable,
    )


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        from importlib import import_module

        if name == "SqlSink":
            needs("sqlalchemy", "a SQL sink")
        if name == "KafkaSink":
            needs("confluent_kafka", "a Kafka sink")
        if name == "DeltaSink":
            needs("deltalake", "a Delta sink")
        if name == "IcebergSink":
            needs("pyiceberg", "an Iceberg sink")
        if name == "ObjectSink":
            needs("obstore", "a sink in an object store")
        if name == "RedisSink":
            needs("redis", "a Redis sink")
        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
