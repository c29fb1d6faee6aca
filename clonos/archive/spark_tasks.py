"""Questions to an archive as jobs of Spark's: each instance is repeated by a task of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pyarrow as pa

from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.environment import module_path
from clonos.protocol.ids import Epoch, Origin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS: Final = (
    "checkpoint string, key_file string, node int, instance int, since long, upto long, modules array<string>"
)


@dataclass(frozen=True, slots=True)
class Span:
    """Epochs of an instance, from one to another."""

    instance: ArchivedInstance
    since: Epoch
    upto: Epoch


Answer = Callable[[ArchivedQuery, Span], Iterator[pa.RecordBatch]]
"""What a task says of its instance. It is a function of a module."""


def archived_query(spark: SparkSession, checkpoint: str) -> ArchivedQuery:
    """With the keys that the session names, or the environment. Raises as ArchivedQuery does."""
    return ArchivedQuery(checkpoint, str(spark.conf.get("spark.clonos.archive.keyFile", "")))


def asked_of(
    spark: SparkSession, query: ArchivedQuery, asked: list[Span], answer: Answer, schema: str
) -> DataFrame:
    """What is answered of these instances, with columns of this schema, when the DataFrame is run."""
    # Functions are pickled by the names of their modules: what this process can import, a task can.
    modules = module_path()
    where = query.checkpoint.location
    if not urlsplit(where).scheme:
        where = os.path.abspath(where)  # tasks may be in another directory
    tasks = [(where, query.key_file, *span.instance.origin, span.since, span.upto, modules) for span in asked]
    partitions = spark.sparkContext.parallelize(tasks, max(1, len(tasks)))
    return spark.createDataFrame(partitions, _TASKS).mapInArrow(partial(_answered, answer), schema)


def _answered(answer: Answer, tasks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in tasks:
        for task in batch.to_pylist():
            sys.path += [each for each in task["modules"] if each not in sys.path and os.path.exists(each)]
            query = ArchivedQuery(task["checkpoint"], task["key_file"])
            query.load_programs()
            instance = query.instance(Origin.of(task["node"], task["instance"]))
            assert instance is not None
            yield from answer(query, Span(instance, Epoch(task["since"]), Epoch(task["upto"])))
