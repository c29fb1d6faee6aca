"""A file is replaced as a whole, or stays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clonos.storage.durable_files import PRIVATE, replace_file


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    replace_file(tmp_path / "it", b"one")
    replace_file(tmp_path / "it", b"two", durable=False)
    assert (tmp_path / "it").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["it"]


def test_a_private_file_is_its_owners_alone_whatever_was_there(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o666)
    (tmp_path / f"token.tmp-{os.getpid()}").write_bytes(b"of a dead process with the same number")
    replace_file(path, b"secret", mode=PRIVATE)
    assert path.stat().st_mode & 0o777 == PRIVATE
    assert path.read_bytes() == b"secret"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_was_there_stays_where_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    replace_file(tmp_path / "it", b"one")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space"):
            replace_file(tmp_path / "it", b"two")
    assert (tmp_path / "it").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["it"]


def test_content_is_synced_before_the_name_appears_and_the_name_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")
        fsync(descriptor)

    def watched_replace(source: str, target: str) -> None:
        done.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    replace_file(tmp_path / "it", b"one")
    assert done == ["content", "name", "directory"]
