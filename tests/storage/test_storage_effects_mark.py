"""That a query has acted on the outside outlives every host: it is in the checkpoint."""

from __future__ import annotations

from pathlib import Path

from clonos.storage.effects_mark import EffectsMark


def test_the_mark_is_seen_by_others_and_left_once(tmp_path: Path) -> None:
    first, second = (EffectsMark(str(tmp_path), tag=tag) for tag in ("first", "second"))
    assert not first.is_there and not second.is_there
    first.leave()
    assert first.is_there and second.is_there
    written = (tmp_path / "clonos" / "effects").stat()
    second.leave()
    EffectsMark(str(tmp_path), tag="third").leave()
    assert (tmp_path / "clonos" / "effects").stat().st_ino == written.st_ino


def test_a_damaged_mark_says_as_much(tmp_path: Path) -> None:
    EffectsMark(str(tmp_path), tag="first").leave()
    (tmp_path / "clonos" / "effects").write_bytes(b"")
    assert EffectsMark(str(tmp_path), tag="second").is_there
