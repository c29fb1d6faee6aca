"""What the sinks' tests share: running a writer as a process, and judging a sink from the outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
import sink_child
import sqlalchemy as sa

from clonos import sinks
from clonos.protocol.fence import Fence
from clonos.storage.embedded_log import MAGIC, read

CHILD = Path(__file__).with_name("sink_child.py")
QUERY = "query-1"
SQL = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("mysql", marks=pytest.mark.mysql),
]


def fresh_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of a new, empty database of one of these kinds."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/sink.db"
    fresh: str = request.getfixturevalue({"postgres": "server"}.get(kind, kind)).fresh_database()
    return fresh


@contextmanager
def child(folder: Path, spec: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """A running writer; killed at the end if it still lives."""
    name = folder / f"spec-{len(list(folder.glob('spec-*')))}.json"
    name.write_text(json.dumps({"query": QUERY, "bundle": 10, **spec}))
    root = str(CHILD.parent.parent)
    examples = str(CHILD.parents[2] / "examples")
    path = os.pathsep.join(filter(None, [root, examples, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, str(CHILD), str(name)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def let_go(process: subprocess.Popen[str]) -> None:
    """Open the gate that the child waits at."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def race(folder: Path, spec: dict[str, Any], upto: int) -> None:
    """Two processes write at once; the one with the higher fence writes to the end, whatever the other has written."""
    spec = {**spec, "upto": upto, "gate": True}
    with child(folder, {**spec, "fence": 1}) as first, child(folder, {**spec, "fence": 2}) as second:
        said = [events(first), events(second)]
        assert [next(each)["event"] for each in said] == ["ready", "ready"]
        let_go(first)
        assert next(said[0])["event"] == "open"
        let_go(second)
        ends = [list(each)[-1] for each in said]
    assert ends[1]["at"] == upto
    assert ends[0].get("error") == "Fenced" or ends[0]["at"] == upto


@contextmanager
def stopped_writer(
    folder: Path, spec: dict[str, Any]
) -> Iterator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]]]]:
    """A writer that hangs where its `crash` says, in its second bundle; with what it says afterwards."""
    with child(folder, {**spec, "fence": 1, "stop": True}) as process:
        said = events(process)
        assert [next(said)["event"] for _ in range(3)] == ["open", "written", "stopping"]
        os.waitpid(process.pid, os.WUNTRACED)
        yield process, said


def kill_at_any_moment(folder: Path, spec: dict[str, Any]) -> int:
    """Writers under rising fences, each killed while it writes; how many rows were written by all of them at least."""
    for fence in range(1, 6):
        with child(folder, {**spec, "fence": fence}) as process:
            for count, _ in enumerate(events(process)):
                if count == 1 + 3 * fence:
                    break
    return 10 * sum(1 + 3 * fence for fence in range(1, 6))


def run_child(folder: Path, spec: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Run a writer to its end: exit status and what it said."""
    with child(folder, spec) as process:
        said = list(events(process))
        return process.wait(timeout=240), said


def sql_sink(url: str, schema: pa.Schema = sink_child.SCHEMA, **options: Any) -> sinks.SqlSink:
    """As a process of the query has it."""
    sink = sinks.sql(url, **{"table": "out", "patience": 10.0, **options})
    sink.validate(schema)
    unpickled: sinks.SqlSink = cloudpickle.loads(cloudpickle.dumps(sink))
    return unpickled


def opened(sink: Any, fence: int = 1, instance: int = 0, query: str = QUERY) -> Any:
    writer = sink.writer()
    try:
        writer.open(query=query, node=sink_child.NODE, instance=instance, fence=Fence(fence))
    except BaseException:
        writer.close()
        raise
    return writer


def engine_of(url: str) -> sa.Engine:
    """For statements as tests write them: names are quoted as standard SQL does."""
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    if engine.dialect.name == "mysql":

        def use_standard_quotes(raw: Any, _record: object) -> None:
            with raw.cursor() as cursor:
                cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")

        sa.event.listen(engine, "connect", use_standard_quotes)
    return engine


def execute(url: str, statement: str) -> list[Any]:
    """The table `out` may be named as it is, although that is a word of MySQL's own."""
    engine = engine_of(url)
    if engine.dialect.name == "mysql":
        statement = re.sub(r"(?<!`)\bout\b(?!`)", "`out`", statement)
    with engine.begin() as connection:
        result = connection.execute(sa.text(statement))
        return list(result) if result.returns_rows else []


def table_rows(url: str, table: str = "out") -> list[tuple[Any, ...]]:
    """The user's table by output number."""
    with engine_of(url).connect() as connection:
        if not sa.inspect(connection).has_table(table):
            return []
    found = [tuple(each) for each in execute(url, f"SELECT clonos_id, card, n FROM {table}")]
    return sorted(found, key=lambda each: int(each[0].rpartition("-")[2]))


def file_rows(folder: Path) -> list[tuple[Any, ...]]:
    """The rows of a folder of JSON Lines or an embedded log; every line must be whole, and every entry."""
    found = []
    for path in sorted(folder.glob("*.log")):
        entries = list(read(folder, int(path.stem)))
        assert sum(16 + len(entry.payload) for entry in entries) + len(MAGIC) == path.stat().st_size
        rows = [json.loads(entry.payload) for entry in entries]
        found += [(row["clonos_id"], row["card"], row["n"]) for row in rows]
    for path in sorted(folder.glob("*.jsonl")):
        text = path.read_bytes()
        assert text == b"" or text.endswith(b"\n"), "a torn line"
        for line in text.split(b"\n")[:-1]:
            row = json.loads(line)
            found.append((row["clonos_id"], row["card"], row["n"]))
    return found


def expected(upto: int) -> list[tuple[Any, ...]]:
    return [(f"3-0-{position}", *sink_child.row(position)) for position in range(1, upto + 1)]


def assert_covered(sink: Any, rows: list[tuple[Any, ...]]) -> None:
    """Every visible row has its determinants and is covered by the cursor (I1 at the sink)."""
    with closing(sink.log_reader(QUERY)) as reader:
        deltas = list(reader.deltas())
        cursor = reader.cursors().get((sink_child.NODE, 0), {}).get(sink_child.CHANNEL, 0)
        assert reader.corrupt == []
    last = int(rows[-1][0].rpartition("-")[2]) if rows else 0
    assert last <= cursor
    assert not rows or max(int(each.rsplit(b" ")[-1]) for each in deltas) >= last
