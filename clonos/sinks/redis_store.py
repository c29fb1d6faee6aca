"""A connection to Redis as a `clonos.sinks.store.Store`, and what its errors mean."""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterError,
    ConnectionError as Disconnected,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TimeoutError as TimedOut,
)
from redis.retry import Retry

from clonos.errors import SinkError, SinkUnavailable
from clonos.sinks.port import Row
from clonos.sinks.redis_rows import RedisRows
from clonos.sinks.redis_script import SCAN, STEP, OwnKeys

LOG = logging.getLogger("clonos.redis")

_STEP_NAME: Final = hashlib.sha1(STEP.encode(), usedforsecurity=False).hexdigest()
_ANSWER_S: Final = 10.0
_REPLICAS_S: Final = 1.0
# Codes of errors that go away when the server has loaded its data, got memory or a disk, or has another role.
_PASSING: Final = re.compile(
    r"\b(READONLY|LOADING|MISCONF|NOREPLICAS|BUSY|CLUSTERDOWN|TRYAGAIN|MASTERDOWN)\b"
)
_NEEDED: Final = (
    "It needs ~<stream or prefix>* and ~clonos:* with +evalsha +eval +type +xadd +hset +hget +hdel +zadd +zrem "
    "+zrangebylex +set +info +wait +ping; +config|get is of use"
)
_MEMORY: Final = "Free memory: trim streams, or raise maxmemory. The sink goes on then"


@dataclass(frozen=True, kw_only=True)
class Server:
    """How a server, or a cluster, is reached, and what it has to promise."""

    url: str
    cluster: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    replicas: int = 0
    durable: bool = True

    @property
    def place(self) -> str:
        """Without what is secret."""
        said: dict[str, Any] = parse_url(self.url)  # type: ignore[no-untyped-call]
        where = said.get("path") or f"{said.get('host', 'localhost')}:{said.get('port', 6379)}"
        return f"{where}/{said.get('db', 0)}"

    def connect(self) -> Any:
        options: dict[str, Any] = {
            "socket_timeout": _ANSWER_S,
            "socket_connect_timeout": _ANSWER_S,
            **self.options,
            "decode_responses": False,
        }
        if self.cluster:
            return RedisCluster.from_url(self.url, **options)
        # It does not repeat by itself: the sink finds out first what has become of a request.
        return Redis.from_url(self.url, **options, retry=Retry(NoBackoff(), 0))


@contextmanager
def told(server: Server) -> Iterator[None]:
    """Errors of Redis, in the sink's terms."""
    try:
        yield
    except (AuthenticationError, AuthorizationError) as error:
        raise SinkError(
            f"Redis at {server.place} refuses the user or the password: {error}",
            hint="Give them in the URL: redis://user:password@host:port/db",
        ) from None
    except MovedError as error:
        raise SinkError(
            f"Redis at {server.place} is part of a cluster: {error}", hint="Say cluster=True"
        ) from None
    except NoPermissionError as error:
        raise SinkError(f"Redis at {server.place} does not permit it: {error}", hint=_NEEDED) from None
    except (Disconnected, TimedOut, RedisClusterException) as error:
        raise SinkUnavailable(f"Redis at {server.place} cannot be reached now: {error}") from None
    except RedisError as error:
        full = isinstance(error, OutOfMemoryError) or "OOM " in str(error)
        if (
            full
            or isinstance(error, (ReadOnlyError, ClusterError, MasterDownError))
            or _PASSING.search(str(error))
        ):
            hint = _MEMORY if full else None
            raise SinkUnavailable(
                f"Redis at {server.place} takes no writes now: {error}", hint=hint
            ) from None
        raise SinkError(f"Redis at {server.place} refuses: {error}") from None


class RedisStore:
    """See `clonos.sinks.store.Store`."""

    def __init__(
        self, server: Server, name: str, rows: Callable[[], RedisRows], *, upsert: bool, maxlen: int | None
    ) -> None:
        self._server, self._name, self._rows = server, name, rows
        self._upsert, self._maxlen = upsert, maxlen
        self._keys = OwnKeys(name).all
        with told(server):
            self._client = server.connect()
        try:
            with told(server):
                self._check()
        except BaseException:
            self.close()
            raise

    def get(self, key: str) -> bytes | None:
        with told(self._server):
            found: bytes | None = self._client.hget(self._keys[0], key)
            return found

    def scan(self, after: str, before: str, limit: int) -> list[tuple[str, bytes]]:
        with told(self._server):
            found = self._client.eval(SCAN, 2, *self._keys[:2], after, before, limit)
        return [(key.decode(), value) for key, value in zip(found[::2], found[1::2], strict=True)]

    def step(
        self,
        expected: Mapping[str, bytes | None],
        changes: Mapping[str, bytes | None],
        rows: list[Row],
        ids: list[str],
    ) -> bool:
        keys: list[str] = list(self._keys)
        written: list[Any] = []
        if rows and self._upsert:
            for key, fields in self._rows().hashes(rows, ids, self._name):
                if key in self._keys:
                    raise SinkError(
                        f"a row's key makes it the hash {key}, in which this sink keeps its own records",
                        hint="Give the sink another name: what the hashes' keys begin with",
                    )
                keys.append(key)
                written.append(fields)
        elif rows:
            keys.append(self._name)
            written = self._rows().entries(rows, ids)
        touch = self._server.replicas > 0
        said = [_pairs(expected), _pairs(changes), written, self._upsert, self._maxlen or False, touch]
        with told(self._server):
            return bool(self._run(keys, msgpack.packb(said, use_bin_type=False)))

    def close(self) -> None:
        self._client.close()

    def _run(self, keys: list[str], argument: bytes) -> int:
        try:
            return self._ask("evalsha", _STEP_NAME, keys, argument)
        except NoScriptError:  # the server has begun anew, or another one has taken its place
            return self._ask("eval", STEP, keys, argument)

    def _ask(self, command: str, script: str, keys: list[str], argument: bytes) -> int:
        if not self._server.replicas:
            answer: int = getattr(self._client, command)(script, len(keys), *keys, argument)
            return answer
        # Both on one connection: Redis waits for the replicas of what was written on that.
        pipeline = self._client.pipeline(transaction=False)
        getattr(pipeline, command)(script, len(keys), *keys, argument)
        pipeline.execute_command("WAIT", self._server.replicas, int(_REPLICAS_S * 1000))
        answer, reached = pipeline.execute()
        if reached < self._server.replicas:
            raise SinkUnavailable(
                f"{reached} of {self._server.replicas} replicas of Redis at {self._server.place} have the bundle after "
                f"{_REPLICAS_S:g} s"
            )
        return answer

    def _check(self) -> None:
        """Raises SinkUnavailable where this is a replica, and SinkError where what is written may be lost."""
        server = self._server
        asked = {"target_nodes": self._client.get_node_from_key(self._keys[0])} if server.cluster else {}
        try:
            said = self._client.info(**asked)
        except NoPermissionError:
            _warn(
                f"Redis at {server.place} does not permit INFO: whether it keeps what is written is not checked"
            )
            return
        if said["role"] != "master":
            raise SinkUnavailable(f"Redis at {server.place} is a replica, and takes no writes")
        if said.get("maxmemory") and said.get("maxmemory_policy", "").startswith("allkeys"):
            raise SinkError(
                f"Redis at {server.place} may remove any key when memory is used up: maxmemory-policy is "
                f"{said['maxmemory_policy']}. Without the keys of this sink, rows would come twice",
                hint="CONFIG SET maxmemory-policy noeviction, or volatile-lru, which spares what does not expire",
            )
        if not server.durable:
            return
        if not said.get("aof_enabled"):
            raise SinkError(
                f"Redis at {server.place} has no append-only file: when it ends, rows that were visible are gone",
                hint="CONFIG SET appendonly yes, or say durable=False if the query may lose and repeat rows then",
            )
        try:
            fsync = self._client.config_get("appendfsync", **asked).get("appendfsync", "not known")
        except RedisError:  # often forbidden where Redis is a service
            fsync = "not known"
        if fsync != "always":
            _warn(
                f"Redis at {server.place} may lose the last second when its machine fails, rows that were visible too: "
                f"appendfsync is {fsync}, not always"
            )


def _pairs(records: Mapping[str, bytes | None]) -> list[Any]:
    return [[key, False if value is None else value] for key, value in records.items()]


@functools.cache
def _warn(text: str) -> None:
    """Once in a process."""
    LOG.warning(text)
