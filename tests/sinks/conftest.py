"""Databases for the sinks' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, postgres_server, why_not


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sink.db"
    fresh: str = request.getfixturevalue("server").fresh_database()
    return fresh
