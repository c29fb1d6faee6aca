"""Versions of a table beside a stream: the newest one is found, and one that may be repeated stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from clonos.errors import CheckpointMismatch, StorageUnavailable
from clonos.protocol.ids import Epoch, NodeId
from clonos.storage.table_versions import TableVersions


def rows(*values: int) -> pa.Table:
    return pa.table({"n": values})


def test_a_version_that_was_replaced_stays_until_all_that_may_have_used_it_has_committed(
    tmp_path: Path,
) -> None:
    versions = TableVersions(str(tmp_path), NodeId(2))

    def publish(number: int, committed: int, now: float) -> str:
        versions.publish(rows(number), committed=Epoch(committed), now=now)
        return versions.newest()

    first = publish(1, committed=0, now=1000.0)
    assert not versions.publish(rows(1), committed=Epoch(0), now=1001.0), "it is the same"
    second = publish(2, committed=1, now=1002.0)
    assert versions.load(first).equals(rows(1)) and versions.load(second).equals(rows(2))
    publish(2, committed=2, now=2000.0)
    assert versions.load(first).equals(rows(1)), "one commit is not enough"
    publish(2, committed=9, now=1003.0)
    assert versions.load(first).equals(rows(1)), "nor is a second"
    publish(2, committed=3, now=1062.0)
    with pytest.raises(StorageUnavailable, match="is not there"):
        versions.load(first)
    assert versions.newest() == second


def test_a_version_that_comes_back_is_the_newest_one(tmp_path: Path) -> None:
    versions = TableVersions(str(tmp_path), NodeId(2))
    for number in (1, 2, 1):
        versions.publish(rows(number), committed=Epoch(0), now=1000.0)
        assert versions.load(versions.newest()).equals(rows(number))


def test_what_is_damaged_is_not_used(tmp_path: Path) -> None:
    versions = TableVersions(str(tmp_path), NodeId(2))
    with pytest.raises(FileNotFoundError):
        versions.newest()
    versions.publish(rows(1), committed=Epoch(0), now=1000.0)
    folder = tmp_path / "clonos" / "tables" / "2"
    file = folder / versions.newest()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(StorageUnavailable, match="damaged"):
        versions.load(versions.newest())
    (folder / "versions").write_text("{}")
    with pytest.raises(CheckpointMismatch, match="damaged"):
        versions.newest()
