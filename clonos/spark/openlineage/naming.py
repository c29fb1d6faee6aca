"""What datasets are called in OpenLineage, by its naming conventions: the client's own, where it has one for a place.

A namespace says where something is, without user or password; a name says what it is there.
"""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from clonos.sinks.object_url import SCHEMES

if TYPE_CHECKING:
    from openlineage.client.naming.dataset import DatasetNaming

_PORTS: Final = {"postgresql": "5432", "mysql": "3306", "mariadb": "3306"}
_LOCAL: Final = "localhost"
_KAFKA_PORT: Final = "9092"
_SAME: Final = {"s3a": "s3", "s3n": "s3"}
"""Schemes that are another way of saying one."""


class DatasetName(NamedTuple):
    """`namespace` and `name` as OpenLineage has them."""

    namespace: str
    name: str


def file_at(path: str) -> DatasetName:
    """A file or folder of this host, or of a file system that is mounted on it: one name, by whichever link it is said
    to be."""
    from openlineage.client.naming.dataset import LocalFileSystem

    return _named(LocalFileSystem(os.path.realpath(path)))


def at_uri(uri: str) -> DatasetName | None:
    """What is at a path or URI of Hadoop's, or of an object store. None where it has no path."""
    parts = urlsplit(uri)
    scheme = _SAME.get(parts.scheme.lower(), parts.scheme.lower())
    path = unquote(parts.path) if scheme in SCHEMES else parts.path
    path = posixpath.normpath(path) if path else ""
    if scheme in ("", "file"):
        return file_at(path) if path.startswith("/") else None
    authority = parts.netloc if scheme.startswith("ab") else parts.netloc.rpartition("@")[2]
    if scheme == "s3" or scheme == "gs":
        path = path.lstrip("/")
    return DatasetName(f"{scheme}://{authority}", path or "/") if authority else None


def kafka_topic(servers: str, topic: str) -> DatasetName:
    """`servers` are host:port, with commas between them. The first names the cluster, as other integrations have it."""
    from openlineage.client.naming.dataset import Kafka

    first = servers.split(",")[0].strip()
    host, port = _host_and_port(first.rpartition("://")[2], _KAFKA_PORT)
    return _named(Kafka(host, port, topic))


def sql_table(backend: str, host: str | None, port: Any, database: str, table: str) -> DatasetName | None:
    """A table of a server: `backend` as SQLAlchemy and JDBC call it. `table` may name its schema, which in PostgreSQL
    is else `public`. None of a backend that is not known."""
    from openlineage.client.naming.dataset import MySQL, Postgres

    if backend not in _PORTS or not database or not table:
        return None
    where = host or _LOCAL, str(port or _PORTS[backend])
    schema, _, name = table.rpartition(".")
    if backend == "postgresql":
        return _named(Postgres(*where, database, schema or "public", name))
    return _named(MySQL(*where, schema or database, name))


def sqlite_table(path: str, table: str) -> DatasetName:
    """There is no convention for SQLite; this one is that of other databases, with the file in the server's place."""
    return DatasetName(f"sqlite://{os.path.realpath(path)}", table)


def _host_and_port(address: str, port: str) -> tuple[str, str]:
    host, colon, said = address.rpartition(":")
    return (host, said) if colon and said.isdigit() else (address, port)


def _named(naming: DatasetNaming) -> DatasetName:
    return DatasetName(naming.get_namespace(), naming.get_name())
