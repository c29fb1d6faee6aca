"""What stands in the streams and hashes of a Redis sink, what is refused beforehand, and Redis Cluster."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from free_port import free_port
from redis import RedisCluster
from redis_server import RedisServer, redis_server, until
from sink_child import SCHEMA
from sink_support import QUERY, opened

from clonos import sinks
from clonos.errors import QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.sinks.redis_rows import MOST_COLUMNS
from clonos.sinks.redis_script import OwnKeys
from clonos.testing.conformance.sinks import (
    COMMIT_CHECKS,
    SINK_CHECKS,
    CommitPlace,
    SinkPlace,
    Written,
    check_name,
)
from clonos.testing.conformance.stores import STORE_CHECKS

pytestmark = pytest.mark.redis


@pytest.fixture
def server(redis_of: Callable[..., RedisServer]) -> RedisServer:
    return redis_of()


def write(sink: Any, schema: pa.Schema, *bundles: list[Any]) -> None:
    sink.validate(schema)
    number = 0
    with closing(opened(sink, 1)) as writer:
        for rows in bundles:
            ids = [f"3-0-{number + at}" for at in range(1, len(rows) + 1)]
            number += len(rows)
            writer.write(rows, ids, {3: number}, [])


# -------------------------------------------------------------------- values

VALUES = [
    (pa.string(), "ä {}", "ä {}".encode()),
    (pa.binary(), b"\0\xff", b"\0\xff"),
    (pa.int64(), -(2**53) - 1, b"-9007199254740993"),
    (pa.bool_(), True, b"true"),
    (pa.float64(), 0.1, b"0.1"),
    (pa.float64(), float("nan"), b"NaN"),
    (pa.decimal128(10, 2), Decimal("1.50"), b"1.50"),
    (pa.date32(), dt.date(2024, 2, 29), b"2024-02-29"),
    (pa.timestamp("us", "UTC"), dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), b"2024-02-29T01:00:00.000000Z"),
    (pa.timestamp("us"), dt.datetime(2024, 2, 29, 1), b"2024-02-29T01:00:00.000000"),
    (pa.duration("us"), dt.timedelta(seconds=-1), b"INTERVAL '-0 00:00:01.000000' DAY TO SECOND"),
    (pa.list_(pa.string()), ["a", None], b'["a",null]'),
    (pa.map_(pa.string(), pa.int64()), {"a": 1}, b'{"a":1}'),
    (pa.struct([("a", pa.binary())]), {"a": b"\1\2"}, b'{"a":"AQI="}'),
    (pa.string(), "", b""),
]


def test_a_field_is_text_and_absent_where_null(server: RedisServer) -> None:
    name = server.fresh_name()
    schema = pa.schema([(f"c{at}", kind) for at, (kind, _, _) in enumerate(VALUES)])
    rows = [tuple(value for _, value, _ in VALUES), (None,) * len(VALUES)]
    write(sinks.redis(server.url, name), schema, rows)
    with closing(server.client()) as client:
        [full, empty] = [fields for _, fields in client.xrange(name)]
    assert full == {
        b"clonos_id": f"{QUERY}/3-0-1".encode(),
        **{f"c{at}".encode(): text for at, (_, _, text) in enumerate(VALUES)},
    }
    assert empty == {b"clonos_id": f"{QUERY}/3-0-2".encode()}


def test_an_upsert_leaves_the_last_row_of_each_key(server: RedisServer) -> None:
    name = server.fresh_name()
    sink = sinks.redis(server.url, f"{name}:", mode="upsert", key="card", id_field="id")
    schema = pa.schema([("card", pa.string()), ("n", pa.int64()), ("note", pa.string())])
    rows = [("a", 1, "x"), ("b", 1, "x"), ("a", 2, None)], [("b", 2, "y"), ("", 0, None)]
    write(sink, schema, *rows)
    with closing(server.client(decode_responses=True)) as client:
        client.hset(f"{name}:a", "foreign", "stays")
        assert client.hgetall(f"{name}:a") == {
            "card": "a",
            "n": "2",
            "id": f"{QUERY}/3-0-3",
            "foreign": "stays",
        }
        assert client.hgetall(f"{name}:b") == {"card": "b", "n": "2", "note": "y", "id": f"{QUERY}/3-0-4"}
        assert client.hgetall(f"{name}:") == {"card": "", "n": "0", "id": f"{QUERY}/3-0-5"}


def test_a_null_takes_a_field_away_that_was_there(server: RedisServer) -> None:
    name = server.fresh_name()
    schema = pa.schema([("card", pa.string()), ("note", pa.string())])
    sink = sinks.redis(server.url, f"{name}:", mode="upsert", key="card")
    write(sink, schema, [("a", "x")], [("a", None)])
    with closing(server.client(decode_responses=True)) as client:
        assert client.hgetall(f"{name}:a").keys() == {"card", "clonos_id"}


def test_several_columns_are_a_key_as_a_json_array_of_texts(server: RedisServer) -> None:
    name = server.fresh_name()
    write(sinks.redis(server.url, f"{name}:", mode="upsert", key=["card", "n"]), SCHEMA, [("ä", 1), ("ä", 2)])
    with closing(server.client(decode_responses=True)) as client:
        assert sorted(client.scan_iter(f"{name}:*")) == [f'{name}:["ä","1"]', f'{name}:["ä","2"]']


def test_a_null_key_is_named_and_nothing_of_its_bundle_is_visible(server: RedisServer) -> None:
    name = server.fresh_name()
    sink = sinks.redis(server.url, f"{name}:", mode="upsert", key="card")
    with pytest.raises(SinkError, match=r"row query-1/3-0-2 has null in column 'card', which is its key"):
        write(sink, SCHEMA, [("a", 1), (None, 2)])
    with closing(server.client()) as client:
        assert list(client.scan_iter(f"{name}:*")) == []


def test_a_stream_keeps_about_as_many_entries_as_it_is_told(server: RedisServer) -> None:
    name = server.fresh_name()
    bundles = [[("a", n) for n in range(at, at + 500)] for at in range(0, 3000, 500)]
    write(sinks.redis(server.url, name, maxlen=200), SCHEMA, *bundles)
    with closing(server.client(decode_responses=True)) as client:
        kept = [int(fields["n"]) for _, fields in client.xrange(name)]
    assert 200 <= len(kept) < 500
    assert kept == list(range(3000 - len(kept), 3000))


def test_other_fields_of_a_hash_at_its_keys_are_refused_by_type(server: RedisServer) -> None:
    name = server.fresh_name()
    with closing(server.client()) as client:
        client.lpush(f"{name}:b", "x")
        sink = sinks.redis(server.url, f"{name}:", mode="upsert", key="card")
        with pytest.raises(SinkError, match=f"{name}:b is a list and not a hash"):
            write(sink, SCHEMA, [("a", 1), ("b", 2)])
        assert client.exists(f"{name}:a") == 0


# ----------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"url": "http://localhost"}, r"needs a URL.*redis://localhost:6379/0"),
        ({"url": "redis://localhost?decode_responses=true"}, "cannot set decode_responses"),
        ({"options": {"retry_on_timeout": True}}, "cannot set retry_on_timeout"),
        ({"name": ""}, "the key of a stream"),
        ({"name": "a}b"}, r"brace that is no hash tag.*'orders:\{eu\}'"),
        ({"mode": "append"}, "'stream' or 'upsert'"),
        ({"mode": "upsert"}, "needs key="),
        ({"key": "card"}, "needs key="),
        ({"mode": "upsert", "key": "nope"}, r"no column 'nope'.*They have card, n"),
        ({"mode": "upsert", "key": "card", "maxlen": 5}, "maxlen="),
        ({"maxlen": 0}, "maxlen="),
        ({"mode": "upsert", "key": "card", "cluster": True}, r"in one slot.*'\{cards\}:'"),
        ({"replicas": 1, "cluster": True}, "replicas="),
        ({"replicas": -1}, "replicas="),
        ({"id_field": "n"}, "id column"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_query_is_defined(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(QueryDefinitionError, match=says):
        sinks.redis(**{"url": "redis://localhost:1", "name": "s", **arguments}).validate(SCHEMA)


def test_what_the_hints_name_is_taken() -> None:
    sinks.redis("redis://localhost:6379/0", "orders:{eu}").validate(SCHEMA)
    sinks.redis("redis://h", "{cards}:", mode="upsert", key="card", cluster=True).validate(SCHEMA)


def test_columns_that_redis_cannot_take_are_refused() -> None:
    sink = sinks.redis("redis://localhost:1", "s:", mode="upsert", key="b")
    with pytest.raises(QueryDefinitionError, match=r"column 'b' is binary and cannot be the key.*hex\(\)"):
        sink.validate(pa.schema([("b", pa.binary())]))
    many = pa.schema([(f"c{at}", pa.int64()) for at in range(MOST_COLUMNS + 1)])
    with pytest.raises(QueryDefinitionError, match="3000 columns, and the rows have 3001"):
        sinks.redis("redis://localhost:1", "s").validate(many)


def test_as_many_columns_as_are_taken(server: RedisServer) -> None:
    name = server.fresh_name()
    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(MOST_COLUMNS)])
    write(sinks.redis(server.url, name), schema, [(None,) * MOST_COLUMNS, (1,) * MOST_COLUMNS])
    with closing(server.client()) as client:
        assert [len(fields) for _, fields in client.xrange(name)] == [1, MOST_COLUMNS + 1]


def test_two_sinks_of_one_place_are_the_same_target() -> None:
    one = sinks.redis("redis://me:pw@h/0", "s")
    assert one.target == sinks.redis("redis://h:6379", "s", maxlen=5).target
    assert one.target != sinks.redis("redis://h:6379/1", "s").target


# ------------------------------------------------------------------- cluster


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    """A cluster of two, each with half of the slots."""
    with ExitStack() as stack:
        found = []
        for first, last in ((0, 8191), (8192, 16383)):
            bus = str(free_port())
            server = stack.enter_context(redis_server(cluster_enabled="yes", cluster_port=bus))
            with closing(server.client()) as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
                if found:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", found[0][0].port, found[0][1])
            found.append((server, bus))
        servers = [server for server, _ in found]
        for server in servers:
            with closing(server.client()) as client:
                until(lambda client=client: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        yield servers


@pytest.fixture(params=["stream", "upsert"])
def clustered(request: pytest.FixtureRequest, nodes: list[RedisServer]) -> SinkPlace:
    upsert = request.param == "upsert"
    name = nodes[0].fresh_name()
    arguments: dict[str, Any] = {"name": name, "cluster": True}
    if upsert:
        arguments |= {"name": f"{{{name}}}:", "mode": "upsert", "key": "n"}

    def visible() -> list[Written]:
        with closing(RedisCluster.from_url(nodes[0].url, decode_responses=True)) as client:
            if upsert:
                found = [client.hgetall(key) for key in client.scan_iter(f"{{{name}}}:*")]
            else:
                found = [entry for _, entry in client.xrange(name)]
        return [(row["clonos_id"], row["card"], int(row["n"])) for row in found]

    return SinkPlace(lambda: sinks.redis(nodes[0].url, **arguments), visible)


@pytest.mark.parametrize("check", [*SINK_CHECKS, *STORE_CHECKS], ids=check_name)
def test_a_sink_in_a_cluster(check: Callable[[SinkPlace], None], clustered: SinkPlace) -> None:
    check(clustered)


@pytest.mark.parametrize("check", COMMIT_CHECKS, ids=check_name)
def test_its_commit_record(check: Callable[[CommitPlace], None], clustered: SinkPlace) -> None:
    check(CommitPlace(clustered.sink))


def test_a_server_of_a_cluster_says_that_it_is_one(nodes: list[RedisServer]) -> None:
    names = [nodes[0].fresh_name() for _ in range(20)]
    with closing(nodes[0].client()) as client:
        far = [name for name in names if client.cluster("KEYSLOT", name) > 8191]
    with pytest.raises(SinkError, match=r"part of a cluster.*Say cluster=True"):
        sinks.redis(nodes[0].url, far[0]).raise_fence(QUERY, Fence(1))
    sinks.redis(nodes[0].url, far[0], cluster=True).raise_fence(QUERY, Fence(1))


def test_a_cluster_that_is_away_is_told() -> None:
    sink = sinks.redis(f"redis://127.0.0.1:{free_port()}", "s", cluster=True, patience=0)
    with pytest.raises(SinkUnavailable, match="cannot be reached now"):
        sink.raise_fence(QUERY, Fence(1))


@pytest.mark.parametrize("name", ["s", "{a}:s", "s:{a}", "x{a}y{b}", "ä"])
def test_its_own_keys_are_in_the_slot_of_the_rows(nodes: list[RedisServer], name: str) -> None:
    with closing(nodes[0].client()) as client:
        slots = {client.cluster("KEYSLOT", key) for key in (name, *OwnKeys(name).all)}
    assert len(slots) == 1


@pytest.mark.parametrize("name", ["a{}b", "a{b", "a}b", "{}"])
def test_a_name_without_such_keys_does_not_fit(name: str) -> None:
    assert not OwnKeys(name).fits
