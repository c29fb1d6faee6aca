"""The Spark session of the end-to-end tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, run
from sessions import session


@pytest.fixture(scope="module")
def spark(plugin_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Warmed up, so that the first real-time epoch of a test is not over before its first record."""
    return session(begin=lambda made: run(made, Run(tmp_path_factory.mktemp("warm"), count=40)) and None)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A directory whose paths are short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="ct-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
