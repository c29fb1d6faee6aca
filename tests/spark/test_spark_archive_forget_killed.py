"""`clonos archive forget` is killed, or the query runs when it looks: what is done in the end is the same, and nothing
of the key is left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from archive_bytes import places_of
from streams import Place

from clonos import cli
from clonos.archive.erasing import KeyEraser
from clonos.archive.erasing_steps import leading
from clonos.archive.reading import ArchivedQuery
from clonos.errors import AlreadyRunning
from clonos.protocol.archive.episode import Lacking
from clonos.spark.leadership import DriverLeadership
from clonos.storage.folder import Folder
from clonos.storage.sealed import sealed
from clonos.tools.archive import forget as command
from clonos.values.key_codec import pack

pytestmark = pytest.mark.spark

KEY = "eve-5b1c9e7d20"
SECRET = "b7f9d02c6e1a48539"
OTHERS = ("ann", "bob", "cy")
WANTED = KEY.encode(), SECRET.encode(), pack((KEY,))
FORMS = ("write", "create", "put", "delete")


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    ctx.state["words"] = row.words
    yield row.k, ctx.state["n"], row.words


def total(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["total"] = ctx.state.get("total", 0) + 1
    yield row.k, row.n, row.words


def start(place: Place) -> None:
    columns = "k string, n long, words string"
    seen = place.causal("k string, words string", partitions=1).groupBy("k").process(see, columns, name="see")
    place.start(seen.groupBy("n").process(total, columns, name="total"))


def feed(place: Place, *keys: str) -> None:
    before = len(place.rows())
    words = [{"k": key, "words": SECRET if key == KEY else key} for key in keys]
    place.write(words, partitions=1)
    place.until(lambda: len(place.rows()) >= before + len(keys), "rows")
    place.await_epochs()


@pytest.fixture
def archived(place: Place) -> Place:
    """The archive begins in the life of the query, when it has state of the key. There are states at the end of some
    epochs, with the key and without it, and where there are none what is kept has to go on."""
    place.spark.conf.unset("spark.clonos.archive.keep")
    start(place)
    feed(place, KEY, *OTHERS)
    place.stop()
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    for lives in ((OTHERS,), (OTHERS, (KEY, *OTHERS), OTHERS, (KEY,), (KEY,), OTHERS)):
        start(place)
        for keys in lives:
            feed(place, *keys)
        place.stop()
    return place


def run(place: Place, *more: str, operator: str = "see", key: str = KEY) -> int:
    at = str(place.checkpoint)
    return cli.main(["archive", "forget", at, "--operator", operator, "--key", key, *more])


def verified(place: Place, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    cli.main(["archive", "verify", str(place.checkpoint), "--json"])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def what_is_there(place: Place) -> Any:
    """But for which driver has stored it, and when."""
    query = ArchivedQuery(str(place.checkpoint))
    states: set[Any] = set()
    segments: set[Any] = set()
    for each in query.instances():
        names = [(name.epoch, name.sequence, name.final) for name in each.state_names]
        assert len(set(names)) == len(names), "each is there once"
        states |= {(each.origin, *name) for name in names}
        for name in each.segments:
            (segment,) = each.files.read([name])
            segments.add((each.origin, name, segment.erased_at is not None, segment.log, segment.blocks))
    cleaned = [each.cleaned_upto for each in query.instances()]
    root = place.checkpoint / "clonos" / "archive"
    files = {path.relative_to(root).parts[:3] for path in root.rglob("*") if path.is_file()}
    assert ("erasure.json",) not in files
    tables = len(list(root.glob("state/*/*/files/*")))
    return states, segments, cleaned, tables


class Killed(BaseException):
    pass


@pytest.fixture
def killed_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """The process ends before a change of the archive, when so many have been made; the changes that were made."""
    original = {form: getattr(Folder, form) for form in FORMS}

    def ends(changes: int) -> list[str]:
        made: list[str] = []

        def until_then(form: str) -> Callable[..., Any]:
            def changed(folder: Folder, *what: Any) -> Any:
                if "/clonos/archive" in str(folder):
                    if len(made) == changes:
                        raise Killed
                    made.append(f"{form} {what}")
                return original[form](folder, *what)

            return changed

        for form in FORMS:
            monkeypatch.setattr(Folder, form, until_then(form))
        return made

    yield ends
    monkeypatch.undo()


def put_back(place: Place, kept: Path) -> None:
    shutil.rmtree(place.checkpoint)
    shutil.copytree(kept, place.checkpoint)


def test_it_is_gone_on_with_wherever_it_was_killed(
    archived: Place,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    killed_behind: Callable[[int], list[str]],
) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(archived.checkpoint, kept)
    whole = verified(archived, capsys)
    assert all(each["repeated"] for each in whole if not each.get("before") and not each.get("open"))
    made = killed_behind(1_000_000)
    assert run(archived, "--yes") == 0
    changes = len(made)
    wanted, told = what_is_there(archived), verified(archived, capsys)
    assert places_of(archived.checkpoint, *WANTED) == []
    assert {each.get("erased", False) for each in told} == {False, True}
    assert changes > 15, made
    for killed_at in range(changes):
        put_back(archived, kept)
        made = killed_behind(killed_at)
        with pytest.raises(Killed):
            run(archived, "--yes")
        killed_behind(1_000_000)
        has_begun = any("erasure.json" in each for each in made)
        if has_begun:
            seen = [each for each in verified(archived, capsys) if not each.get("before")]
            behind = "which was erased, and there is no state from between"  # it is stored when that goes on
            others = [each for each in seen if not each["repeated"] and not each.get("erased")]
            assert all(behind in each["why"] for each in others), f"{killed_at} {others}"
            plan = (archived.checkpoint / "clonos" / "archive" / "erasure.json").read_bytes()
            assert not any(each in plan for each in WANTED)
        assert run(archived, "--yes") == 0, (killed_at, made[-1:], capsys.readouterr())
        assert what_is_there(archived) == wanted, (killed_at, made[-1:])
        if killed_at % 4 == 0:
            assert verified(archived, capsys) == told, (killed_at, made[-1:])
        assert places_of(archived.checkpoint, *WANTED) == [], (killed_at, made[-1:])


def test_another_one_waits_until_it_has_been_gone_on_with(
    archived: Place, capsys: pytest.CaptureFixture[str], killed_behind: Callable[[int], list[str]]
) -> None:
    killed_behind(12)
    with pytest.raises(Killed):
        run(archived, "--yes")
    killed_behind(1_000_000)
    for more in ({"key": "ann"}, {"operator": "total", "key": "1"}):
        capsys.readouterr()
        assert run(archived, "--yes", **more) == 1
        told = capsys.readouterr().err
        assert "the erasure of another key was cut short" in told and "--operator see" in told
    assert run(archived) == 1
    assert "was cut short. --operator see, the same --key again, and --yes" in capsys.readouterr().err
    start(archived)  # the query goes on meanwhile, and gets the key again
    feed(archived, *OTHERS)
    feed(archived, KEY)
    archived.stop()
    assert run(archived, "--yes") == 0
    assert places_of(archived.checkpoint, *WANTED) == []
    assert run(archived, "--yes", key="ann") == 0


def test_what_the_query_does_while_it_looks_is_seen(
    archived: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs just before; then it cannot."""
    find = KeyEraser.find

    def runs_before(query: ArchivedQuery) -> Any:
        start(archived)
        feed(archived, KEY, *OTHERS)
        archived.stop()
        return leading(query)

    def tries_to_run(eraser: KeyEraser) -> Any:
        with pytest.raises(AlreadyRunning):
            DriverLeadership(str(archived.checkpoint)).take()
        return find(eraser)

    query = ArchivedQuery(str(archived.checkpoint))
    assert query.instances("see")[0].segments
    monkeypatch.setattr(command, "leading", runs_before)
    monkeypatch.setattr(KeyEraser, "find", tries_to_run)
    assert run(archived, "--yes") == 0
    assert places_of(archived.checkpoint, *WANTED) == []


def test_what_an_older_version_had_begun_is_ended(
    archived: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has written down which epochs go when states were as they should be; of which key, it did not."""
    instance = ArchivedQuery(str(archived.checkpoint)).instances("see")[0]
    last = max(instance.epochs)
    path = archived.checkpoint / "clonos" / "archive" / "erasure.json"
    path.write_bytes(sealed({"parts": [[*instance.origin, last]]}))
    assert [each["epoch"] for each in verified(archived, capsys) if each.get("erased")] == [last]
    assert run(archived) == 1
    assert "another erasure was cut short. --yes goes on with it" in capsys.readouterr().err
    assert run(archived, "--yes") == 0
    assert not path.exists() and places_of(archived.checkpoint, *WANTED) == []
    found = ArchivedQuery(str(archived.checkpoint)).instances("see")[0].episode(last)
    assert isinstance(found, Lacking) and found.is_erased
