"""`clonos archive verify` tells what an instance lacks, and what stands in its place; what need not be wrong does not
count."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from streams import Place

import clonos
from clonos import cli
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ConfigurationError
from clonos.storage.manifest import Manifest
from clonos.values import state_codec
from clonos.values.readable import moment

pytestmark = pytest.mark.spark
EPOCHS = 5
LAST = EPOCHS - 1


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, ctx.state["n"]


def run_to(place: Place, last: int, more: Mapping[int, str] = MappingProxyType({})) -> None:
    """Each epoch in a start of its own, so that there is a state at its end. Both instances are given as many records
    each time, so that their logs are equally long; but for `more` keys."""
    for epoch in range(last + 1):
        place.spark.conf.set("spark.clonos.archive.keep", "1 day")
        rows = place.causal("k string", partitions=1).groupBy("k")
        before = len(place.rows())
        keys = ("a", "b", "c", "d", *filter(None, [more.get(epoch)]))
        place.write(({"k": key} for key in keys), partitions=1)  # first, so that the first epoch has them
        place.start(rows.process(see, "k string, n long", name="see", parallelism=2))
        place.await_rows(before + len(keys))
        place.await_commit()
        place.stop()


def verified(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], code: int, *more: str
) -> list[dict[str, Any]]:
    capsys.readouterr()
    found = cli.main(["archive", "verify", str(checkpoint), "--json", *more])
    told = capsys.readouterr()
    assert found == code, told
    said: list[dict[str, Any]] = json.loads(told.out)
    return said


def why(said: list[dict[str, Any]], **what: Any) -> str:
    return "; ".join(each["why"] for each in said if not each["repeated"] and what.items() <= each.items())


Change = Callable[[Path], None]


def without(*epochs: int, states: Sequence[int] = ()) -> Change:
    """Of the first instance."""

    def drop(archive: Path) -> None:
        for epoch in epochs:
            for path in (archive / "segments" / "2" / "0").glob(f"{epoch:020d}-*"):
                path.unlink()
        for path in manifests(archive, 0):
            if Manifest.from_bytes(path.read_bytes(), "it").epoch in states:
                path.unlink()

    return drop


def manifests(archive: Path, instance: int) -> list[Path]:
    """Of its states, oldest first."""
    return sorted((archive / "state" / "2" / str(instance) / "manifests").iterdir())


def without_origin(meta: bytes) -> bytes:
    """As an earlier version has written it."""
    said = state_codec.decode(meta)
    del said["origin"]
    return state_codec.encode(said)


def with_states_of_the_other(*epochs: int, has_origin: bool = True) -> Change:
    """In the place of those of the first instance."""

    def put(archive: Path) -> None:
        for own, other in zip(manifests(archive, 0), manifests(archive, 1), strict=True):
            its = Manifest.from_bytes(other.read_bytes(), "it")
            if its.epoch in epochs:
                own.unlink()
                meta = its.meta if has_origin else without_origin(its.meta)
                own.with_name(str(its.name)).write_bytes(replace(its, meta=meta).to_bytes())
                share_files(archive)

    return put


def with_what_the_other_has_kept(epoch: int) -> Change:
    """In a state of the first instance, which says what it says itself."""

    def put(archive: Path) -> None:
        for own, other in zip(manifests(archive, 0), manifests(archive, 1), strict=True):
            mine, its = (Manifest.from_bytes(path.read_bytes(), "it") for path in (own, other))
            if mine.epoch == epoch:
                own.write_bytes(replace(mine, files=its.files).to_bytes())
                share_files(archive)

    return put


def share_files(archive: Path) -> None:
    states = archive / "state" / "2"
    for path in (states / "1" / "files").iterdir():
        shutil.copy(path, states / "0" / "files")


def segments_of_the_other(archive: Path) -> None:
    """In the place of those of the last epoch of the first instance."""
    segments = archive / "segments" / "2"
    (own,), (other,) = ([*(segments / at).glob(f"{LAST:020d}-*")] for at in "01")
    shutil.copy(other, own)


def before_the_commit(change: Change) -> Change:
    """Before the last epoch has committed."""

    def drop(archive: Path) -> None:
        change(archive)
        (archive.parent.parent / "commits" / str(LAST)).unlink()

    return drop


ENDS = f"of epoch {LAST} other instances have more: "
CHANGES = {
    "nothing": (lambda archive: None, 0, []),
    "first epochs": (
        without(0, 1, states=range(EPOCHS)),
        1,
        ["of epochs 0 to 1 other instances have more: lost"],
    ),
    "first epochs, and a state older than the first one left": (
        without(0, 1, 2, states=[1, 2]),
        1,
        [
            "of epochs 1 to 2 other",
            "the last state before it, of the end of epoch 0, is at",
            "what was between",
        ],
    ),
    "first epochs as they are dropped": (
        without(0, 1, states=[0]),
        0,
        ["of epochs 0 to 1 other", "archive.keep"],
    ),
    "an epoch between": (without(2), 1, ["of epoch 2 other instances have more: lost"]),
    "last epochs": (
        without(LAST - 1, LAST),
        1,
        [f"of epochs {LAST - 1} to {LAST} other instances have more: lost"],
    ),
    "the last epoch": (without(LAST), 1, [f"{ENDS}lost"]),
    "an epoch that may not have ended": (before_the_commit(without(LAST)), 0, [f"{ENDS}lost, or not ended"]),
    "states of another instance": (
        with_states_of_the_other(*range(EPOCHS)),
        1,
        [
            "the state of the end of epoch 0: it is of another instance, 2-1",
            f"of the end of epoch {LAST}: it is",
        ],
    ),
    "a later state of another instance": (
        with_states_of_the_other(2),
        1,
        ["the state of the end of epoch 2: it is of another instance"],
    ),
    "as an earlier version has stored it": (
        with_states_of_the_other(2, has_origin=False),
        1,
        ["the state of the end of epoch 2: it is not what the instance was there"],
    ),
    "a later state with what another has kept": (
        with_what_the_other_has_kept(2),
        1,
        ["differs from the recording"],
    ),
    "a segment of another instance": (segments_of_the_other, 1, ["has another segment"]),
}


def test_what_is_missing_and_what_is_not_its_own_is_told(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run_to(place, LAST)
    for name, (change, code, texts) in CHANGES.items():
        copy = Path(shutil.copytree(place.checkpoint, place.base / name))
        change(copy / "clonos" / "archive")
        said = verified(copy, capsys, code)
        for text in texts:
            assert text in why(said, instance=0), (name, said)
        assert not why(said, instance=1), (name, said)
        repeated = [each["epoch"] for each in said if each["repeated"]]
        assert len(
            set(zip(repeated, (each["instance"] for each in said if each["repeated"]), strict=True))
        ) == len(repeated), (name, said)


ERASED = 1


def test_every_epoch_has_an_answer_also_behind_an_erased_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run_to(place, LAST, {ERASED: "eve"})
    forget = ["archive", "forget", str(place.checkpoint), "--operator", "see", "--key", "eve", "--yes"]
    assert cli.main(forget) == 0
    assert answers(verified(place.checkpoint, capsys, 0)) == answers_with(ERASED, "erased")
    without(states=range(ERASED, EPOCHS))(place.checkpoint / "clonos" / "archive")
    lacks = answers_with(ERASED, "erased") | {(0, each): "" for each in range(ERASED + 1, EPOCHS)}
    said = verified(place.checkpoint, capsys, 1)
    assert answers(said) == lacks
    assert f"epoch {LAST}: it comes behind epoch {ERASED}, which was erased" in why(said, epoch=LAST)
    for epoch in range(EPOCHS):
        one = ["--operator", "see", "--instance", "0", "--epoch", str(epoch)]
        said = verified(place.checkpoint, capsys, int(epoch > ERASED), *one)
        assert answers(said)[0, epoch] == lacks[0, epoch], said
    said = verified(place.checkpoint, capsys, 1, "--epoch", str(EPOCHS))
    assert f"epoch {EPOCHS} is not in the archive. It has epochs 0 to {LAST}" in why(said)
    assert cli.main(["archive", "verify", str(place.checkpoint), "--instance", "2"]) == 1
    assert "there is no instance 2 of see. There are see[0], see[1]" in capsys.readouterr().err


def answers(said: list[dict[str, Any]]) -> dict[tuple[int, int], str]:
    """By instance and epoch."""
    return {
        (each["instance"], each["epoch"]): "repeated"
        if each["repeated"]
        else "erased"
        if each.get("erased")
        else ""
        for each in said
    }


def answers_with(epoch: int, answer: str) -> dict[tuple[int, int], str]:
    every = {(instance, each): "repeated" for instance in range(2) for each in range(EPOCHS)}
    return every | {(instance, epoch): answer for instance in range(2)}


def find_all(checkpoint: Path, capsys: pytest.CaptureFixture[str], *bounds: str, code: int) -> list[str]:
    """What was lacking."""
    capsys.readouterr()
    command = ["archive", "find", str(checkpoint), "--operator", "see", "all", "--json", *bounds]
    found = cli.main(command)
    told = capsys.readouterr()
    assert found == code, told
    lacking: list[str] = json.loads(told.out)["lacking"]
    return lacking


def find(checkpoint: Path, capsys: pytest.CaptureFixture[str], *bounds: str, code: int) -> list[str]:
    """What of the first instance was lacking, and of no other."""
    lacking = find_all(checkpoint, capsys, *bounds, code=code)
    assert all(each.startswith("see[0]: ") for each in lacking), lacking
    return [each.removeprefix("see[0]: ") for each in lacking]


def again(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield from see(key, row, ctx)


def compare(checkpoint: Path, capsys: pytest.CaptureFixture[str], *bounds: str, code: int) -> str:
    """With the same function."""
    capsys.readouterr()
    name = "test_spark_archive_verify:again"
    command = ["replay", str(checkpoint), "--operator", "see", "--against", name, *bounds]
    assert cli.main(command) == code
    return capsys.readouterr().err


def damaged(epoch: int) -> Change:
    """Of the first instance."""

    def damage(archive: Path) -> None:
        for path in (archive / "segments" / "2" / "0").glob(f"{epoch:020d}-*"):
            path.write_bytes(path.read_bytes()[:-3] + b"xyz")

    return damage


ALL = range(EPOCHS + 9)
"""A query that is stopped late may have run empty epochs behind."""
NOT_SEARCHED = {
    "the first is damaged": (damaged(0), "epoch 0 is not searched: epoch 0: it cannot be read", True),
    "the first are lost": (
        without(0, 1, states=ALL),
        "epochs 0 to 1 are not searched: not in the archive: lost",
        True,
    ),
    "the first are dropped": (
        without(0, 1, states=[0]),
        "epochs 0 to 1 are not searched: not in the archive: dropped",
        False,
    ),
    "the last is lost": (
        without(*ALL[LAST:]),
        rf"epochs? {LAST}( to \d+)? (is|are) not searched: not in the archive: lost",
        True,
    ),
}


def test_what_was_asked_for_and_is_not_there_is_lacking(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """From wherever it is asked for; without a beginning what retention has dropped is not asked for."""
    run_to(place, LAST)
    assert find(place.checkpoint, capsys, "--from=0", code=0) == []
    assert compare(place.checkpoint, capsys, "--from=0", code=0) == ""
    every = ArchivedQuery(str(place.checkpoint)).instances("see")
    begun = moment(min(name.written_at for each in every for name in each.segments) - 1)
    for name, (change, text, always) in NOT_SEARCHED.items():
        copy = Path(shutil.copytree(place.checkpoint, place.base / name))
        change(copy / "clonos" / "archive")
        for bounds in (["--from=0"], [f"--from={begun}"]):
            (lacking, *_) = find(copy, capsys, *bounds, code=1)
            assert re.match(text, lacking), (name, bounds)
            assert "see[0] cannot be repeated: " in compare(copy, capsys, *bounds, code=1)
            if name != "the last is lost":  # without upto= it ends where all have something
                with pytest.raises(ConfigurationError, match="cannot be repeated: it has"):
                    clonos.lineage(place.spark, str(copy), since=bounds[0].removeprefix("--from="))
        if name != "the first are lost":  # without any state nothing can be repeated
            assert len(find(copy, capsys, code=int(always))) == always, name
        if name in ("the first is damaged", "the first are dropped"):
            assert compare(copy, capsys, code=0) == "", "from the first one that can be repeated"
    for path in (place.checkpoint / "clonos" / "archive" / "segments" / "2").glob(f"*/{0:020d}-*"):
        path.unlink()
    assert len(find_all(place.checkpoint, capsys, "--from=0", code=1)) == 2, "also where no instance has it"
    with pytest.raises(ConfigurationError, match="cannot be repeated: it has"):
        clonos.lineage(place.spark, str(place.checkpoint), since=0)
