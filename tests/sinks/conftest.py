"""Databases for the sinks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import PostgresServer
from sink_support import SQL, fresh_database


@pytest.fixture(scope="module")
def server(postgres: PostgresServer) -> PostgresServer:
    return postgres


@pytest.fixture(params=SQL)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database."""
    return fresh_database(request.param, request, tmp_path)
