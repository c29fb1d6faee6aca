"""Logs of events in a table of PostgreSQL, which every host of a query reaches.

    clonos_events(owner, log, starts_at, entry)    one row per append, with where it stands in its log

`owner` is of one instance of one checkpoint (`event_place`). A transaction of an instance is one row, and commits
before what it has is sent. Connections are those of libpq: what is not in the URL, the password above all, it takes
from a service file, from PGPASSFILE or from the environment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, Connection, make_url

from clonos.errors import CheckpointMismatch, ConfigurationError, StorageUnavailable

_METADATA: Final = sa.MetaData()
TABLE: Final = sa.Table(
    "clonos_events",
    _METADATA,
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("log", sa.Text, primary_key=True),
    sa.Column("starts_at", sa.BigInteger, primary_key=True),
    sa.Column("entry", sa.LargeBinary, nullable=False),
)
_PATIENCE_SECONDS: Final = 30
"""For how long a database that cannot be reached is tried again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_WAIT_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58"})
"""SQLSTATE classes that pass by themselves: connection, rollback, resources, locks, operator intervention, system."""
_READ_ONLY: Final = "25006"  # a standby, which may be promoted
_CREATED: Final = frozenset({"23505", "42P07", "42710"})  # another one has created the table at the same time
_REACHES: Final = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_HINT: Final = (
    "Write postgresql://host/database, postgresql:///database?host=one:5432&host=other:5432 for several hosts, or "
    "postgresql:///?service=name with a service file of libpq"
)
T = TypeVar("T")


def checked_url(text: str) -> str:
    """Of a database that logs can be kept in; as it may be written down. Raises ConfigurationError."""
    try:
        url = make_url(text.replace("postgres://", "postgresql://", 1))
    except (sa.exc.ArgumentError, ValueError):  # several hosts are not read there
        raise ConfigurationError("spark.clonos.events.url is no URL of a database", hint=_HINT) from None
    if url.drivername not in ("postgresql", "postgresql+psycopg"):
        raise ConfigurationError(
            f"spark.clonos.events.url names {url.drivername!r}: logs of events are kept in PostgreSQL, or beside the "
            "checkpoint",
            hint=f"{_HINT}; or leave it out",
        )
    if url.password is not None or any("password" in key for key in url.query):
        raise ConfigurationError(
            "spark.clonos.events.url has a password, and settings are shown by Spark's web pages",
            hint="Leave it out, and let libpq find it on every host: in ~/.pgpass, PGPASSFILE or a service file",
        )
    return url.set(drivername="postgresql").render_as_string()


class EventTables:
    """See `EventMedium`. `url` as `checked_url` gives it. With `patience`, in seconds, a database that cannot be
    reached is tried again."""

    def __init__(self, url: str, owner: str, *, patience: float = _PATIENCE_SECONDS) -> None:
        self._url: URL = make_url(url).set(drivername="postgresql+psycopg")
        self._owner = owner
        self._patience = patience
        self._engine = sa.create_engine(
            self._url,
            poolclass=sa.pool.NullPool,
            pool_reset_on_return=None,  # no transaction outlives a call
            hide_parameters=True,
            connect_args=_REACHES,
        )
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def __str__(self) -> str:
        return f"{self._url.render_as_string()}/{TABLE.name}/{self._owner}"

    def __del__(self) -> None:
        with suppress(Exception):
            self._drop_connection()

    def create(self) -> None:
        """The table, where it is not there."""
        self._run("creating", lambda connection: _METADATA.create_all(connection, checkfirst=True))

    def logs(self) -> dict[str, int]:
        ends = sa.func.max(TABLE.c.starts_at + sa.func.length(TABLE.c.entry))
        asked = sa.select(TABLE.c.log, ends).where(TABLE.c.owner == self._owner).group_by(TABLE.c.log)
        return dict(
            self._run("listing", lambda connection: [(log, end) for log, end in connection.execute(asked)])
        )

    def read(self, log: str, at: int, upto: int | None = None) -> bytes:
        own = sa.and_(TABLE.c.owner == self._owner, TABLE.c.log == log)
        asked = sa.select(TABLE.c.starts_at, TABLE.c.entry).where(own, TABLE.c.starts_at >= at)
        asked = asked.order_by(TABLE.c.starts_at)
        if upto is not None:
            asked = asked.where(TABLE.c.starts_at < upto)

        def found(connection: Connection) -> list[Any]:
            rows = list(connection.execute(asked))
            if not rows and connection.execute(sa.select(TABLE.c.log).where(own).limit(1)).first() is None:
                raise FileNotFoundError(f"{self}/{log}")
            return rows

        pieces: list[bytes] = []
        for starts_at, data in self._run("reading", found):
            if starts_at != at:
                break  # what is behind a row that is lost is not read
            pieces.append(data)
            at += len(data)
        return b"".join(pieces)

    def append(self, log: str, at: int, data: bytes) -> None:
        row = {"owner": self._owner, "log": log, "starts_at": at, "entry": data}
        added = insert(TABLE).values(row)
        or_there = added.on_conflict_do_update(
            index_elements=["owner", "log", "starts_at"],
            set_={"entry": added.excluded.entry},
            where=TABLE.c.entry == added.excluded.entry,
        ).returning(TABLE.c.starts_at)
        if self._run("writing", lambda connection: connection.execute(or_there).first()) is None:
            raise CheckpointMismatch(
                f"{self}/{log} has something else at {at}, which this process has not written",
                hint="Another query has this checkpoint; see that only one runs",
            )

    def sync(self, log: str) -> None:
        """What has been committed is durable."""

    def delete(self, log: str) -> None:
        gone = sa.delete(TABLE).where(TABLE.c.owner == self._owner, TABLE.c.log == log)
        self._run("removing", lambda connection: connection.execute(gone))

    def _run(self, doing: str, act: Callable[[Connection], T]) -> T:
        """In one transaction; again as long as it may become possible."""
        deadline, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                with self._lock:
                    return self._attempt(act)
            except sa.exc.DBAPIError as error:
                if not _may_pass(error):
                    raise ConfigurationError(
                        f"{doing} {self} failed: {error.orig}",
                        hint=f"The user needs SELECT, INSERT, UPDATE and DELETE on table {TABLE.name}, and CREATE on "
                        "its schema where the table is not there",
                    ) from error
                if time.monotonic() + pause > deadline:
                    raise StorageUnavailable(
                        f"{doing} {self} failed: {error.orig}", hint="See whether the database can be reached"
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _attempt(self, act: Callable[[Connection], T]) -> T:
        if self._connection is None:
            connection = self._engine.connect()
            try:
                connection.exec_driver_sql("SET synchronous_commit = on")  # whatever the user's default is
                connection.commit()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        try:
            with self._connection.begin():
                return act(self._connection)
        except FileNotFoundError:
            raise
        except BaseException:
            self._drop_connection()
            raise

    def close(self) -> None:
        with self._lock:
            self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sa.exc.DBAPIError):
                connection.close()


def _may_pass(error: sa.exc.DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    if error.connection_invalidated or state is None:
        return True
    return state[:2] in _WAIT_CLASSES or state == _READ_ONLY or state in _CREATED
