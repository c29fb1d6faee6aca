"""A sink that is another query's source: the embedded log, and who may write to one."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from clonos import sinks
from clonos.errors import ConfigurationError, LogCorrupt, QueryDefinitionError, SinkError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId
from clonos.sinks.appended_file import AppendedFileWriter
from clonos.sources import LogWriter
from clonos.storage.embedded_log import partitions_of, read

SCHEMA = pa.schema([("card", pa.string()), ("n", pa.int64())])
CURSORS = {3: 1}


def made(folder: Path, partitions: int = 2) -> sinks.LogSink:
    sink = sinks.log(folder, partitions, patience=0, durable=False)
    sink.validate(SCHEMA)
    sink.raise_fence("q", Fence(1))
    return sink


def opened(sink: sinks.LogSink, fence: int = 2, instance: int = 0, query: str = "q") -> AppendedFileWriter:
    writer = sink.writer()
    writer.open(query=query, node=NodeId(5), instance=InstanceId(instance), fence=Fence(fence))
    return writer


def test_rows_are_entries_of_the_instances_partition(tmp_path: Path) -> None:
    sink = made(tmp_path / "log")
    assert (sink.parallelism, partitions_of(tmp_path / "log")) == (2, 2)
    with closing(opened(sink, instance=1)) as writer:
        writer.write([("a", 1), (None, 2)], ["3-0-1", "3-0-2"], {3: 2}, [b"delta"])
    assert list(read(tmp_path / "log", 0)) == []
    assert [json.loads(entry.payload) for entry in read(tmp_path / "log", 1)] == [
        {"clonos_id": "3-0-1", "card": "a", "n": 1},
        {"clonos_id": "3-0-2", "card": None, "n": 2},
    ]


def test_a_bundle_that_is_tried_again_is_appended_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the clock has gone on, and entries say when they were appended."""
    from clonos.errors import SinkUnavailable
    from clonos.sinks import appended_file

    whole, failing = appended_file.write_all, [True]

    def fails(descriptor: int, data: bytes, offset: int) -> None:
        if failing and len(data) > 8:
            failing.pop()
            raise OSError(28, "No space left on device")
        whole(descriptor, data, offset)

    with closing(opened(made(tmp_path))) as writer:
        monkeypatch.setattr(appended_file, "write_all", fails)
        with pytest.raises(SinkUnavailable):
            writer.write([("a", 1)], ["3-0-1"], CURSORS, [])
        writer.write([("a", 1)], ["3-0-1"], CURSORS, [])
        writer.write([("b", 2)], ["3-0-2"], {3: 2}, [])
    assert [json.loads(entry.payload)["card"] for entry in read(tmp_path, 0)] == ["a", "b"]


def test_zeros_that_a_power_failure_leaves_are_no_entries(tmp_path: Path) -> None:
    sink = made(tmp_path)
    with closing(opened(sink)) as writer:
        writer.write([("a", 1)], ["3-0-1"], CURSORS, [])
        writer.write([("b", 2)], ["3-0-2"], {3: 2}, [])
    (first, second) = read(tmp_path, 0)
    file = tmp_path / "0.log"
    data = file.read_bytes()
    file.write_bytes(data[: second.position] + bytes(len(data) - second.position))
    assert list(read(tmp_path, 0)) == [first]
    with closing(opened(sink, fence=3)):
        assert list(read(tmp_path, 0)) == [first, second]


def test_a_log_that_another_query_has_written_is_refused(tmp_path: Path) -> None:
    with LogWriter(tmp_path, 1) as log:
        log.append(0, b"of somebody")
    sink = made(tmp_path, 1)
    with pytest.raises(LogCorrupt, match="this query has written none of them"):
        opened(sink)
    with closing(opened(made(tmp_path / "own"), query="r")) as writer:  # the hint
        writer.write([("a", 1)], ["3-0-1"], CURSORS, [])


def test_another_writer_is_noticed(tmp_path: Path) -> None:
    sink = made(tmp_path)
    with closing(opened(sink)) as writer:
        writer.write([("a", 1)], ["3-0-1"], CURSORS, [])
        with LogWriter(tmp_path) as log:
            log.append(0, b"a stranger")
        with pytest.raises(SinkError, match="changed by another program"):
            writer.write([("b", 2)], ["3-0-2"], {3: 2}, [])


def test_partitions_are_fixed(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ConfigurationError, match="has 2 partitions, not 3"):
        made(tmp_path, 3)
    with pytest.raises(SinkError, match="instance 2 of a sink has no partition"):
        opened(made(tmp_path), instance=2)
    with pytest.raises(QueryDefinitionError, match="at least one partition"):
        sinks.log(tmp_path, 0)
