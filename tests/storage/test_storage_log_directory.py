"""Whose causal logs a directory holds: a copy of a checkpoint does not use the original's."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from clonos.errors import CheckpointMismatch
from clonos.protocol.fence import Generation
from clonos.storage.log_directory import claim_log_directory, is_copied_for, note_start, same_directory
from clonos.storage.sealed import sealed

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


@pytest.mark.parametrize("how", ["a link that leads to the copy now", "files that are one in both"])
def test_a_copy_is_not_taken_for_the_original(original: Path, data: Path, how: str) -> None:
    copy = original.parent / "copy"
    if how == "files that are one in both":
        claim(data, original)
        shutil.copytree(original, copy, copy_function=os.link)
        name = copy
    else:
        name = original.parent / "link"
        name.symlink_to(original)
        claim(data, name)
        shutil.copytree(original, copy)
        name.unlink()
        name.symlink_to(copy)
    with pytest.raises(CheckpointMismatch, match="is still there"):
        claim(data, name)


def test_a_directory_that_was_moved_still_has_its_checkpoint(original: Path, data: Path) -> None:
    claim(data, original)
    copy = Path(shutil.copytree(original, original.parent / "copy"))
    moved = Path(shutil.move(data, original.parent / QUERY))
    with pytest.raises(CheckpointMismatch, match="is still there"):
        claim(moved, copy)
    claim(moved, original)


def test_what_cannot_be_seen_is_not_taken_to_be_gone(original: Path, data: Path) -> None:
    """A storage that is not there any more: the hint is the way out."""
    claim(data, original)
    said = json.loads((data / "checkpoint").read_text())["body"]
    gone = {**said, "checkpoint": "old/s3:old", "location": "nonesuch://old/checkpoint"}
    (data / "checkpoint").write_bytes(sealed(gone))
    with pytest.raises(CheckpointMismatch, match="of which this host cannot see now") as refused:
        claim(data, original)
    assert f"remove {data / 'checkpoint'}" in str(refused.value)
    (data / "checkpoint").unlink()
    claim(data, original)


@pytest.mark.parametrize("what", ["copied together", "copied later", "moved"])
def test_which_logs_are_good_for_a_copy(original: Path, data: Path, what: str) -> None:
    claim(data, original)
    note_start(data, Generation(3))
    copy = Path(shutil.copytree(original, original.parent / "copy"))
    own = original.parent / "own" / QUERY
    if what == "copied later":
        note_start(data, Generation(4))
    shutil.copytree(data, own)
    if what == "moved":  # not a copy: there is none beside it
        shutil.rmtree(original)
    if what == "copied later":
        with pytest.raises(CheckpointMismatch, match=r"after start 4 of .*was copied after start 3"):
            is_copied_for(str(own), str(data), str(copy), QUERY, Generation(3))
        return
    for _ in range(2):  # also after a start that came to nothing
        found = is_copied_for(str(own), str(data), str(copy), QUERY, Generation(3))
        assert found is (what == "copied together")
        claim(own, copy)


def test_a_damaged_mark_says_what_to_do(original: Path, data: Path) -> None:
    claim(data, original)
    (data / "checkpoint").write_bytes(b"{}")
    with pytest.raises(CheckpointMismatch, match=f"Remove {data / 'checkpoint'}"):
        claim(data, original)


def test_directories_are_compared_by_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert same_directory(f"{tmp_path}/link/q", f"{tmp_path}//data/q/")
    assert not same_directory(f"{tmp_path}/data/q", f"{tmp_path}/data/r")
