"""What is noted of states from which a key was erased: never encrypted, and read as earlier versions left it."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.errors import ClonosError, LogCorrupt
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.archive import Archive
from clonos.storage.archive_keys import ArchiveKey, ArchiveKeys
from clonos.storage.encrypted_file import FilePlace, encrypted
from clonos.storage.sealed import sealed

ORIGIN = Origin.of(2, 1)
KEY, OTHER = ArchiveKey(b"k" * 32), ArchiveKey(b"o" * 32)
STATES = [Epoch(2), Epoch(5), Epoch(12)]


def archive_at(path: Path, *keys: ArchiveKey) -> Archive:
    return Archive(str(path), keys=ArchiveKeys(keys))


def file_of(path: Path, suffix: str = "") -> Path:
    return path / "clonos" / "archive" / "cleaned" / f"2-1.json{suffix}"


def leave(path: Path, *upto: int) -> None:
    """As an earlier version has."""
    file = file_of(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(sealed({"upto": list(upto), "of": "2-1"}))


def leave_encrypted(path: Path, key: ArchiveKey, *upto: int) -> None:
    """As an earlier version has."""
    file = file_of(path, ".encrypted")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(encrypted([sealed({"upto": list(upto)})], key, FilePlace("cleaned/2-1.json"))))


def test_what_an_earlier_version_has_noted_is_read_and_left(tmp_path: Path) -> None:
    archive = archive_at(tmp_path, OTHER)
    archive.cleaned.write_anew_if_unreadable(ORIGIN, Epoch(9), STATES)
    assert not file_of(tmp_path).exists() and archive.cleaned.upto(ORIGIN) == []
    leave(tmp_path, 4, 9)
    archive.cleaned.write_anew_if_unreadable(ORIGIN, Epoch(12), STATES)
    assert archive.cleaned.upto(ORIGIN) == [4, 9]
    assert archive.cleaned.upto(Origin.of(2, 0)) == []


def test_one_of_another_instance_is_told(tmp_path: Path) -> None:
    """Those of earlier versions do not say whose they are."""
    archive = archive_at(tmp_path)
    leave(tmp_path, 9)
    file_of(tmp_path).rename(file_of(tmp_path).with_name("2-0.json"))
    with pytest.raises(LogCorrupt, match=r"2-0.json is of another instance: 2-1"):
        archive.cleaned.upto(Origin.of(2, 0))
    file_of(tmp_path).write_bytes(sealed({"upto": [4]}))
    assert archive.cleaned.upto(ORIGIN) == [4]


def test_one_of_an_earlier_version_is_read_and_a_start_decrypts_it(tmp_path: Path) -> None:
    leave_encrypted(tmp_path, KEY, 4)
    assert archive_at(tmp_path, KEY).cleaned.upto(ORIGIN) == [4]
    archive_at(tmp_path, OTHER).begin_writing()
    assert file_of(tmp_path, ".encrypted").exists(), "it does not open, and is left as it is"
    archive_at(tmp_path, OTHER, KEY).begin_writing()
    assert not file_of(tmp_path, ".encrypted").exists()
    assert b'"upto"' in file_of(tmp_path).read_bytes()
    assert archive_at(tmp_path).cleaned.upto(ORIGIN) == [4]


def test_where_both_are_there_the_later_one_counts(tmp_path: Path) -> None:
    """The process was killed before it removed the one that is encrypted."""
    leave(tmp_path, 9)
    leave_encrypted(tmp_path, KEY, 4)
    assert archive_at(tmp_path, KEY).cleaned.upto(ORIGIN) == [9]
    archive_at(tmp_path, KEY).begin_writing()
    assert not file_of(tmp_path, ".encrypted").exists()
    assert archive_at(tmp_path, KEY).cleaned.upto(ORIGIN) == [9]


@pytest.mark.parametrize("how", ["cut off", "empty", "its key is gone"])
def test_one_that_cannot_be_read_is_written_anew(tmp_path: Path, how: str) -> None:
    if how == "its key is gone":
        leave_encrypted(tmp_path, KEY, 4)
    else:
        leave(tmp_path, 4)
        file = file_of(tmp_path)
        file.write_bytes(b"" if how == "empty" else file.read_bytes()[:-3])
    archive = archive_at(tmp_path, OTHER)
    with pytest.raises(ClonosError, match=r"cleaned/2-1\.json") as refused:
        archive.cleaned.upto(ORIGIN)
    assert "checkpointLocation" not in str(refused.value), "the query is well"
    assert isinstance(refused.value, LogCorrupt) or "--erase-unknown" in str(refused.value)
    archive.cleaned.write_anew_if_unreadable(ORIGIN, Epoch(9), STATES)
    assert archive_at(tmp_path).cleaned.upto(ORIGIN) == [2, 5, 9, 12], "no state serves what is behind it"
    assert not file_of(tmp_path, ".encrypted").exists()
