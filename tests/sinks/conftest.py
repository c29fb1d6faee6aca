"""Databases for the sinks' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import PostgresServer, postgres_server, why_not
from sink_support import SQL, fresh_database


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with postgres_server() as running:
        yield running


@pytest.fixture(params=SQL)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database."""
    return fresh_database(request.param, request, tmp_path)
