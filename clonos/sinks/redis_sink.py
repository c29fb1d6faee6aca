"""Rows into Redis: a stream, or a hash for each key; in one script with what Clonos keeps beside them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from redis.connection import parse_url

from clonos.errors import QueryDefinitionError
from clonos.sinks.redis_rows import RedisRows
from clonos.sinks.redis_script import OwnKeys
from clonos.sinks.redis_store import RedisStore, Server
from clonos.sinks.store import StoreSink
from clonos.sinks.values import column_names

if TYPE_CHECKING:
    import pyarrow as pa

Mode = Literal["stream", "upsert"]

_OWN: Final = {
    "decode_responses": "the sink takes bytes",
    "retry": "the sink tries again by itself, as long as patience says",
    "retry_on_timeout": "the sink tries again by itself, as long as patience says",
    "retry_on_error": "the sink tries again by itself, as long as patience says",
}


class RedisSink(StoreSink):
    """A stream of Redis, or hashes.

    `url`: `redis://user:password@host:port/db`, `rediss://` with TLS, or `unix://path`. `name`: the key of the stream;
    with `mode="upsert"`, what the keys of the hashes begin with, and `key` is the column, or columns, that follow.
    `id_field`: the field of a row's id. `maxlen`: about how many entries a stream keeps; all, unless given. `cluster`:
    whether the server is part of Redis Cluster. `replicas`: how many replicas must have a bundle before the query goes
    on. `options`: further settings of the client, redis-py, as for TLS. `patience`: for how many seconds an unreachable
    server is tried again before the query hears of it. `durable`: whether a server without append-only file is refused.
    """

    unavailable = ()  # the store tells its errors apart itself

    def __init__(
        self,
        url: str,
        name: str,
        *,
        mode: Mode = "stream",
        key: str | Sequence[str] | None = None,
        id_field: str = "clonos_id",
        maxlen: int | None = None,
        cluster: bool = False,
        replicas: int = 0,
        options: Mapping[str, Any] | None = None,
        patience: float = 30.0,
        durable: bool = True,
    ) -> None:
        super().__init__(patience=patience)
        self._key = column_names(key)
        self._name, self._mode, self._id_field, self._maxlen = name, mode, id_field, maxlen
        _check_url(url, dict(options or {}))
        self._server = Server(
            url=url, cluster=cluster, options=dict(options or {}), replicas=replicas, durable=durable
        )
        self._check_arguments()

    def __repr__(self) -> str:
        return f"RedisSink({self._server.place!r}, {self._name!r})"

    @property
    def target(self) -> Hashable:
        return "redis", self._server.place, self._mode, self._name

    @property
    def id_column(self) -> str:
        return self._id_field

    def validate(self, schema: pa.Schema) -> None:
        super().validate(schema)
        RedisRows(schema, self._id_field, self._key)

    def connect(self) -> RedisStore:
        return RedisStore(
            self._server,
            self._name,
            lambda: RedisRows(self.schema, self._id_field, self._key),
            upsert=self._mode == "upsert",
            maxlen=self._maxlen,
        )

    def _check_arguments(self) -> None:
        if self._mode not in ("stream", "upsert"):
            raise QueryDefinitionError(f"mode is 'stream' or 'upsert', not {self._mode!r}")
        if (self._mode == "upsert") != bool(self._key):
            raise QueryDefinitionError("mode 'upsert' needs key=, and only that mode takes it")
        if self._maxlen is not None and (self._mode != "stream" or self._maxlen < 1):
            raise QueryDefinitionError("maxlen= is the number of entries that a stream keeps, 1 or more")
        if not self._name and self._mode == "stream":
            raise QueryDefinitionError("a Redis sink needs the key of a stream")
        own = OwnKeys(self._name)
        if not own.fits:
            raise QueryDefinitionError(
                f"{self._name!r} has a brace that is no hash tag, so that no key of the sink's would be in its slot",
                hint="Put the tag into braces, as in 'orders:{eu}', or use none",
            )
        if self._server.cluster and self._mode == "upsert" and not own.has_tag:
            raise QueryDefinitionError(
                f"in Redis Cluster the hashes must be in one slot, and those of {self._name!r} would not be",
                hint="Put a hash tag into the prefix, as in '{cards}:'",
            )
        if self._server.replicas < 0 or (self._server.replicas and self._server.cluster):
            raise QueryDefinitionError(
                "replicas= is a number of replicas of a single server; it cannot be given with cluster=True"
            )


def _check_url(url: str, options: Mapping[str, Any]) -> None:
    try:
        said = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise QueryDefinitionError(
            f"a Redis sink needs a URL: {error}", hint="As redis://localhost:6379/0"
        ) from None
    for name in sorted({*said, *options} & _OWN.keys()):
        raise QueryDefinitionError(f"options= cannot set {name}: {_OWN[name]}")
