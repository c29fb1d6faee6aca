"""A key is erased from an archive: nothing of it can be read or repeated there any more, all else as before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from archive_bytes import places_of
from modes import mostly
from streams import Place

from clonos import cli
from clonos.api.streams import CausalStream
from clonos.archive.erasing import KeyEraser
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ConfigurationError
from clonos.protocol.ids import Origin
from clonos.storage.archive import Archive
from clonos.values.key_codec import pack

pytestmark = pytest.mark.spark

SECRET = "b7f9d02c6e1a48539"  # in what the key's records say
KEY = "eve-5b1c9e7d20"
OTHERS = ("ann", "bob", "cy")


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Keeps what was said, and says something by a timer behind the first record."""
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    ctx.state["words"] = row.words
    if ctx.state["n"] == 1:
        ctx.timer(at=ctx.now_us() + 1, name="soon")
        ctx.timer(at=ctx.now_us() + 3_600_000_000, name="late")
    yield row.k, ctx.state["n"], ctx.random.random(), row.words


def soon(key: Any, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield key[0], -1, 0.0, ctx.state["words"]


def total(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["total"] = ctx.state.get("total", 0.0) + row.r
    yield row.k, row.n, ctx.state["total"], row.words


def stream(place: Place) -> CausalStream:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    columns = "k string, n long, r double, words string"
    seen = place.causal("k string, words string").groupBy("k")
    totals = seen.process(see, columns, name="see", on_timer=soon).groupBy("n")
    return totals.process(total, columns, name="total")


def start(place: Place, mode: str) -> None:
    place.start(stream(place), mode)


def feed(place: Place, *keys: str) -> None:
    """Each key's record becomes visible."""
    before = len(place.rows())
    fresh = sum(1 for key in keys if key not in {row["k"] for row in place.rows()})
    place.write({"k": key, "words": f"{SECRET}-{key}" if key == KEY else key} for key in keys)
    place.until(lambda: len(place.rows()) >= before + len(keys) + fresh, "rows of records and first timers")
    place.await_epochs()


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    found = cli.main([arguments[0], *arguments[1:], "--json"])
    told = capsys.readouterr()
    assert found == code, told
    return json.loads(told.out)


def explained(place: Place, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Of every row, why it says what it says, or what is lacking."""
    found: dict[str, Any] = {}
    for row in place.rows():
        capsys.readouterr()
        cli.main(["explain", str(place.checkpoint), row["clonos_id"], "--json"])
        found[row["clonos_id"]] = json.loads(capsys.readouterr().out)
    return found


def command(place: Place) -> list[str]:
    return ["archive", "forget", str(place.checkpoint), "--operator", "see", "--key", KEY]


def forget(place: Place, capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> Any:
    return said(capsys, *command(place), *more, code=code)


def leftovers(place: Place) -> list[str]:
    """Where in the archive the key, or what its records said, still is."""
    return places_of(place.checkpoint, SECRET.encode(), KEY.encode(), pack((KEY,)))


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_nothing_of_a_key_is_left_and_all_else_is(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    start(place, mode)
    for keys in (OTHERS, (KEY, "ann"), OTHERS, (KEY,), (KEY,), ("bob",), ("cy",)):
        feed(place, *keys)
        if keys == (KEY, "ann"):
            place.kill(2, 0)
    before = explained(place, capsys)
    epochs = {
        row: each["made_by"]["epoch"] if "made_by" in each else each["epoch"] for row, each in before.items()
    }
    of_eve = {epochs[row["clonos_id"]] for row in place.rows() if row["k"] == KEY}
    assert len(leftovers(place)) > 2 and set(epochs.values()) - of_eve

    found = forget(place, capsys)
    assert (found["erased"], set(found["epochs"]), found["unknown"]) == (False, of_eve, {})
    capsys.readouterr()
    assert cli.main([*command(place), "--yes"]) == 1
    assert "AlreadyRunning" in capsys.readouterr().err
    assert explained(place, capsys) == before
    place.stop()

    assert forget(place, capsys, "--yes")["erased"]
    assert leftovers(place) == []
    after = explained(place, capsys)
    for row, epoch in epochs.items():
        if epoch in of_eve:
            assert "was erased" in after[row]["lacking"]
        else:
            assert after[row] == before[row]
    all_verified = said(capsys, "archive", "verify", str(place.checkpoint))
    # One may not have ended when it was stopped
    verified = [one for one in all_verified if not one.get("open")]
    assert all(one["repeated"] or one.get("erased") for one in verified), all_verified
    listed = {one["epoch"] for one in verified if not one["repeated"]}
    assert listed == of_eve, "each that was erased, and no other"
    again = forget(place, capsys, "--yes")
    assert (again["erased"], again["epochs"], again["states"]) == (False, [], 0)
    capsys.readouterr()
    assert cli.main([*command(place), "--yes"]) == 0
    assert capsys.readouterr().out == "the archive has nothing of the key, of this operator\n"
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0
    told = capsys.readouterr().out
    assert "CANNOT" not in told
    for epoch in of_eve:
        assert f" epoch {epoch}: it was erased by `clonos archive forget`" in told

    start(place, mode)
    feed(place, "ann")
    feed(place, KEY, "ann")
    place.stop()
    rows = place.rows()
    assert max(row["n"] for row in rows if row["k"] == KEY) == 4, "the query itself has forgotten nothing"
    last = max(epochs.values())
    new = {row: each for row, each in explained(place, capsys).items() if row not in before}
    assert all(each["epoch"] > last for each in new.values() if "row" in each)
    lacking = [each["lacking"] for each in new.values() if "lacking" in each]
    assert len(lacking) <= 1 and all("a key was erased" in why for why in lacking), (
        "of the first epoch at most"
    )
    of_eve = {new[row["clonos_id"]]["epoch"] for row in rows if row["k"] == KEY and row["clonos_id"] in new}
    assert set(forget(place, capsys, "--yes")["epochs"]) >= of_eve
    assert leftovers(place) == []


def test_what_is_no_key_or_cannot_be_looked_into_is_said(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    start(place, "microbatch")
    feed(place, KEY, "ann")
    feed(place, "bob")
    place.stop()
    query = ArchivedQuery(str(place.checkpoint))
    for operator, key, why in (
        ("see", [KEY, 1], "has 1 columns, not 2"),
        ("total", [KEY], "is no key of 'total'"),
        ("sum", [KEY], "has no operator 'sum'"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            KeyEraser(query, operator, key).find()
    nothing = said(
        capsys, "archive", "forget", str(place.checkpoint), "--operator", "see", "--key", "dan", "--yes"
    )
    assert (nothing["epochs"], nothing["states"], nothing["unknown"]) == ([], 0, {})

    archive = Archive(str(place.checkpoint))
    of_bob = next(
        name
        for origin in (Origin.of(2, 0), Origin.of(2, 1))
        for name in archive.segments(origin).names()
        for segment in archive.segments(origin).read([name])
        if any(b"bob" in block for block in segment.blocks)
    )
    (path,) = place.checkpoint.rglob(str(of_bob))
    path.write_bytes(path.read_bytes()[:-1])
    refused = forget(place, capsys, "--yes", code=1)
    assert not refused["erased"] and any(f"epoch {of_bob.epoch} " in what for what in refused["unknown"])
    erased = forget(place, capsys, "--yes", "--erase-unknown")
    assert erased["erased"] and of_bob.epoch in erased["epochs"]
    assert leftovers(place) == []


def test_an_epoch_that_has_not_ended_goes_too(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.spark.conf.set("spark.clonos.snapshot.interval", "100ms")
    place.query = place.writer(stream(place)).trigger(realTime="5 minutes").start()
    for keys in (OTHERS, (KEY, "ann"), OTHERS):
        before = len(place.rows())
        place.write({"k": key, "words": f"{SECRET}-{key}" if key == KEY else key} for key in keys)
        place.until(lambda before=before, keys=keys: len(place.rows()) >= before + len(keys), "rows")
    place.until(lambda: leftovers(place), "the archive has something of the epoch")
    place.stop()
    erased = forget(place, capsys, "--yes")
    assert erased["epochs"] and erased["unknown"] == {}
    assert leftovers(place) == []

    start(place, "realtime")  # the epoch is repeated, and ends
    feed(place, "ann")
    place.stop()
    assert leftovers(place), "its records came again"
    forget(place, capsys, "--yes")
    assert leftovers(place) == []
