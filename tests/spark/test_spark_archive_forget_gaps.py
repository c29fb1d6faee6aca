"""Where the operator whose key is erased lacks what others have, by retention or since files were lost: that counts as
unknown, and is neither passed over nor kept."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archive_bytes import places_of
from earlier_archive import as_earlier_version
from streams import Place

from clonos import cli
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.protocol.ids import Epoch
from clonos.storage.archive_keys import ArchiveKey
from clonos.storage.encrypted_file import FilePlace, encrypted
from clonos.values.key_codec import pack

pytestmark = pytest.mark.spark

KEY = "eve-5b1c9e7d20"
SECRET = "b7f9d02c6e1a48539"
WANTED = KEY.encode(), SECRET.encode(), pack((KEY,))
OTHERS = ("ann", "bob", "cy", "dan")


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, ctx.state["n"], row.words


def total(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["total"] = ctx.state.get("total", 0) + row.n
    yield row.k, ctx.state["total"], row.words


def start(place: Place, **trigger: str) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    rows = place.causal("k string, words string, fill string", partitions=1).groupBy("k")
    seen = rows.process(see, "k string, n long, words string", name="see", parallelism=2)
    totals = seen.groupBy("n").process(total, "k string, t long, words string", name="total", parallelism=1)
    if trigger:
        place.query = place.writer(totals).trigger(**trigger).start()
    else:
        place.start(totals)


def feed(place: Place, *keys: str, fill: int = 0) -> None:
    """Each key's record becomes visible, and its epoch is over."""
    before = len(place.rows())
    place.write(
        ({"k": key, "words": SECRET if key == KEY else key, "fill": secrets.token_hex(fill)} for key in keys),
        partitions=1,
    )
    place.until(lambda: len(place.rows()) >= before + len(keys), "rows")
    place.await_commit()


def run(place: Place, *epochs: tuple[str, ...], fill: int = 0) -> None:
    """Each in a start of its own, so that there is a state behind it."""
    for keys in epochs:
        start(place)
        feed(place, *keys, fill=fill)
        place.stop()


def copy_of(place: Place, name: str) -> Path:
    return Path(shutil.copytree(place.checkpoint, place.base / name))


def owners(checkpoint: Path) -> list[ArchivedInstance]:
    return ArchivedQuery(str(checkpoint)).instances("see")


def had_key(checkpoint: Path) -> tuple[ArchivedInstance, Epoch]:
    """Which instance was given the key, and in which epoch."""
    found = {
        (instance.origin.instance, segment.epoch): instance
        for instance in owners(checkpoint)
        for segment in instance.files.read(instance.segments)
        if any(KEY.encode() in block for block in segment.blocks)
    }
    (((_, epoch), instance),) = found.items()
    return instance, epoch


def segments_of(checkpoint: Path, instance: ArchivedInstance) -> Path:
    node, number = instance.origin
    return checkpoint / "clonos" / "archive" / "segments" / str(node) / str(number)


def forget(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0
) -> tuple[Any, str]:
    """What it says in JSON, and its error."""
    capsys.readouterr()
    command = ["archive", "forget", str(checkpoint), "--operator", "see", "--key", KEY, "--yes", "--json"]
    found = cli.main([*command, *more])
    told = capsys.readouterr()
    assert found == code, told
    return json.loads(told.out) if told.out else None, told.err


def check_it_is_refused_and_then_erased(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], *unknown: str
) -> None:
    before = places_of(checkpoint, *WANTED)
    assert before
    refused, error = forget(checkpoint, capsys, code=1)
    assert not refused["erased"] and set(unknown) <= refused["unknown"].keys(), refused
    assert "--erase-unknown" in error and places_of(checkpoint, *WANTED) == before
    erased, _ = forget(checkpoint, capsys, "--erase-unknown")
    assert erased["erased"] and erased["unknown"] == refused["unknown"]
    assert places_of(checkpoint, *WANTED) == []
    again, _ = forget(checkpoint, capsys)
    assert (again["erased"], again["epochs"], again["unknown"]) == (False, [], {}), "that is known since"


def test_epochs_that_were_lost_are_unknown(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    run(place, OTHERS, (KEY, "ann"), OTHERS, OTHERS)
    instance, epoch = had_key(place.checkpoint)
    last = max(instance.epochs)

    one = copy_of(place, "one-segment")
    for path in segments_of(one, instance).glob(f"{epoch:020d}-*"):
        path.unlink()
    check_it_is_refused_and_then_erased(one, capsys, f"epoch {epoch} that {instance} does not have")

    alone = copy_of(place, "one-instance")
    shutil.rmtree(segments_of(alone, instance))
    assert owners(alone)[instance.origin.instance].state_names
    check_it_is_refused_and_then_erased(alone, capsys, f"epochs 0 to {last} that {instance} does not have")
    assert not owners(alone)[instance.origin.instance].state_names

    every = copy_of(place, "the-operator")
    shutil.rmtree(segments_of(every, instance).parent)
    assert cli.main(["archive", "verify", str(every), "--operator", "see"]) == 1
    assert "has nothing of what see did" in capsys.readouterr().err
    unknown = [f"epochs 0 to {last} that see[{at}] does not have" for at in range(2)]
    check_it_is_refused_and_then_erased(every, capsys, *unknown)

    shutil.rmtree(every / "clonos" / "archive")
    _, error = forget(every, capsys, code=1)
    assert "has no archive. Start the query with spark.clonos.archive.keep" in error

    found, _ = forget(place.checkpoint, capsys)
    assert (found["epochs"], found["unknown"]) == ([epoch], {}), "with all its files nothing is unknown"
    assert places_of(place.checkpoint, *WANTED) == []


def test_epochs_that_retention_has_dropped_of_the_operator_alone_are_unknown(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.spark.conf.set("spark.clonos.archive.size", "90k")  # of which each of three instances has its part
    run(place, (KEY, "ann"), OTHERS)
    instance, epoch = had_key(place.checkpoint)
    for _ in range(8):
        run(place, OTHERS, fill=20_000)
        if min(owners(place.checkpoint)[instance.origin.instance].epochs) > epoch:
            break
    (other,) = ArchivedQuery(str(place.checkpoint)).instances("total")
    first = min(owners(place.checkpoint)[instance.origin.instance].epochs)
    assert min(other.epochs) <= epoch < first, "it has been dropped of the one, and not of the other"
    dropped = f"epochs {min(other.epochs)} to {first - 1} that {instance} does not have"
    refused, _ = forget(place.checkpoint, capsys, code=1)
    assert "archive.size" in refused["unknown"][dropped]
    check_it_is_refused_and_then_erased(place.checkpoint, capsys, dropped)


def test_an_epoch_to_which_the_operator_had_not_come_goes(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    start(place, realTime="5 minutes")
    place.write([{"k": key, "words": SECRET, "fill": ""} for key in (KEY, "ann")], partitions=1)
    (other,) = place.until(lambda: ArchivedQuery(str(place.checkpoint)).instances("total"), "the query")
    of_other = segments_of(place.checkpoint, other)
    place.until(lambda: list(of_other.glob("*")) and places_of(place.checkpoint, *WANTED), "it is archived")
    place.stop()
    of_owner = of_other.parent.parent / str(owners(place.checkpoint)[0].origin.node)
    shutil.rmtree(of_owner, ignore_errors=True)  # or it had not come to it
    found, _ = forget(place.checkpoint, capsys)
    assert (found["epochs"], found["unknown"]) == ([0], {})
    assert places_of(place.checkpoint, *WANTED) == []


def damage(path: Path, how: str) -> None:
    if how == "cut off":
        path.write_bytes(path.read_bytes()[:-3])
        return
    key = ArchiveKey(b"a key that has been lost since.".ljust(32))  # as an earlier version left it
    path.with_name(path.name + ".encrypted").write_bytes(
        b"".join(encrypted([path.read_bytes()], key, FilePlace(f"cleaned/{path.name}")))
    )
    path.unlink()


def test_what_an_earlier_version_has_noted_of_states_can_be_lost(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run(place, OTHERS, (KEY, "ann"), OTHERS)
    instance, _ = had_key(place.checkpoint)
    forget(place.checkpoint, capsys)
    as_earlier_version(place.checkpoint, owners(place.checkpoint)[instance.origin.instance])
    run(place, OTHERS, OTHERS)
    number, last = instance.origin.instance, max(owners(place.checkpoint)[instance.origin.instance].epochs)
    cleaned = f"cleaned/{instance.origin.node}-{number}.json"
    for how in ("cut off", "encrypted"):
        checkpoint = copy_of(place, how)
        damage(checkpoint / "clonos" / "archive" / cleaned, how)
        capsys.readouterr()
        assert cli.main(["archive", "verify", str(checkpoint), "--json"]) == 1
        verified = json.loads(capsys.readouterr().out)
        affected = [each for each in verified if not each["repeated"] and not each.get("erased")]
        assert affected and {each["instance"] for each in affected} == {number}
        for each in affected:
            assert cleaned in each["why"] and "--erase-unknown" in each["why"], each
            assert "checkpointLocation" not in each["why"], "the query itself is well"
        begun = {"operator": "see", "instance": number, "epoch": 0, "repeated": True}
        assert any(begun.items() <= each.items() for each in verified), "it begins without a state"
        refused, error = forget(checkpoint, capsys, code=1)
        assert cleaned in refused["unknown"][f"states of {instance}"] and cleaned in error
        assert f"epoch {last} of {instance}" in refused["unknown"]
        forget(checkpoint, capsys, "--erase-unknown")
        assert cli.main(["archive", "verify", str(checkpoint)]) == 0, capsys.readouterr()
        assert places_of(checkpoint, *WANTED) == []
        healed = owners(checkpoint)[number]
        assert isinstance(healed.cleaned_upto, list)
        assert set(healed.state_epochs) <= set(healed.cleaned_upto), "none serves what is behind it"

    shutil.rmtree(place.checkpoint)
    shutil.copytree(checkpoint, place.checkpoint)
    run(place, (KEY, *OTHERS), OTHERS, OTHERS)
    (row,) = [each for each in place.rows()[-len(OTHERS) :] if each["k"] == "ann"]
    assert cli.main(["explain", str(place.checkpoint), row["clonos_id"]]) == 0, capsys.readouterr()
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0, capsys.readouterr()
