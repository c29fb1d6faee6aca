"""Whose causal logs a directory holds: a copy of a checkpoint does not use the original's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from clonos.errors import CheckpointMismatch
from clonos.storage.log_directory import claim_log_directory, same_directory

QUERY = "0123456789abcdef"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    (tmp_path / "original" / "clonos").mkdir(parents=True)
    (tmp_path / "original" / "clonos" / "query.json").write_text(f'{{"query": "{QUERY}"}}')
    return tmp_path / "original"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / QUERY).mkdir(parents=True)
    return tmp_path / "data" / QUERY


def claim(data: Path, checkpoint: Path | str) -> None:
    claim_log_directory(data, str(checkpoint), QUERY)


def test_the_checkpoint_of_the_logs_may_be_named_in_any_way(original: Path, data: Path) -> None:
    (original.parent / "link").symlink_to(original)
    for name in (original, f"{original}/", f"file://{original}", original.parent / "link", original):
        claim(data, name)


def test_a_checkpoint_that_was_moved_keeps_its_logs(original: Path, data: Path) -> None:
    claim(data, original)
    claim(data, shutil.move(original, original.parent / "moved"))


def test_another_query_may_have_the_place_of_the_former_checkpoint(original: Path, data: Path) -> None:
    claim(data, original)
    moved = Path(shutil.copytree(original, original.parent / "moved"))
    (original / "clonos" / "query.json").write_text('{"query": "another"}')
    claim(data, moved)


@pytest.mark.parametrize("follows", ["copies the logs", "removes the mark", "removes the other"])
def test_a_copy_is_refused_while_the_original_is_there_and_the_hint_helps(
    original: Path, data: Path, follows: str
) -> None:
    claim(data, original)
    copy = Path(shutil.copytree(original, original.parent / "copy"))
    with pytest.raises(CheckpointMismatch, match="is still there") as refused:
        claim(data, copy)
    assert str(original) in str(refused.value) and str(copy) in str(refused.value)
    if follows == "copies the logs":
        hinted = re.search(r"copy (\S+) to another directory, as its folder ([0-9a-f]+)", str(refused.value))
        assert hinted is not None
        own = shutil.copytree(hinted.group(1), original.parent / "own" / hinted.group(2))
        claim(Path(own), copy)
        claim(data, original)
        return
    if follows == "removes the mark":
        hinted = re.search(r"remove (\S+)$", str(refused.value).rstrip(")."))
        assert hinted is not None
        Path(hinted.group(1)).unlink()
    else:
        shutil.rmtree(original)
    claim(data, copy)


def test_a_damaged_mark_says_what_to_do(original: Path, data: Path) -> None:
    claim(data, original)
    (data / "checkpoint").write_bytes(b"{}")
    with pytest.raises(CheckpointMismatch, match=f"Remove {data / 'checkpoint'}"):
        claim(data, original)


def test_directories_are_compared_by_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert same_directory(f"{tmp_path}/link/q", f"{tmp_path}//data/q/")
    assert not same_directory(f"{tmp_path}/data/q", f"{tmp_path}/data/r")
