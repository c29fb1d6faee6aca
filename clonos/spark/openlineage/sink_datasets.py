"""Which dataset a sink writes to, and what its columns are called there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.spark.openlineage.naming import DatasetName, at_uri, file_at, kafka_topic, sql_table, sqlite_table


def dataset_of_sink(sink: Any) -> DatasetName | None:
    """None where only the user's code knows it: of `call`, `foreachBatch`, and sinks of a user's own."""
    match sink.target:
        case ("jsonl" | "log" | "delta", str(path)):
            return file_at(path)
        case ("objects", *_):
            return at_uri(sink.url)
        case ("kafka", _, str(topic)):
            return kafka_topic(",".join(sink.servers), topic)
        case ("redis", str(place), _, str(name)):
            return DatasetName(f"redis://{place}", name)
        case ("iceberg", str(catalog), str(host), port, str(path), str(table)):
            where = f"{host}:{port}" if host and port else host
            return DatasetName(
                f"iceberg://{where}{path.rstrip('/')}" if where or path else f"iceberg://{catalog}", table
            )
        case ("sql", str(path), None, str(table), _):
            return sqlite_table(path, table)
        case ("sql", url, schema, str(table), _):
            name = table if schema is None else f"{schema}.{table}"
            return sql_table(url.get_backend_name(), url.host, url.port, url.database or "", name)
    return None


def columns_in_sink(sink: Any, names: Sequence[str]) -> dict[str, str]:
    """What columns of the rows are called there, of those that are there."""
    if hasattr(sink, "table_columns"):
        found: dict[str, str] = sink.table_columns(names)
        return found
    return {name: name for name in names}
