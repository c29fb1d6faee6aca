"""A state from which a key was erased serves no epoch in which the key may have come again: it says so itself, so that
no other file has to be there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from earlier_archive import as_earlier_version, bounds_in_states, note_of
from streams import Place

from clonos import cli
from clonos.archive.reading import ArchivedInstance, ArchivedQuery

pytestmark = pytest.mark.spark

KEY = "eve"


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """What it gives does not say what it keeps, so that only the state tells a wrong one."""
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, row.n


def run(place: Place, *epochs: tuple[str, ...]) -> None:
    """In one start, so that only behind the first one there is a state."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.parallelism", "1")
    rows = place.causal("k string, n long", partitions=1)
    place.start(rows.groupBy("k").process(count, "k string, n long", name="count"))
    for keys in epochs:
        before = len(place.rows())
        place.write(({"k": key, "n": number} for number, key in enumerate(keys)), partitions=1)
        place.until(lambda before=before, keys=keys: len(place.rows()) >= before + len(keys), "rows")
        place.await_commit()
    place.stop()


def forget(checkpoint: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    command = ["archive", "forget", str(checkpoint), "--operator", "count", "--key", key, "--yes"]
    assert cli.main(command) == 0, capsys.readouterr()


def instance_at(checkpoint: Path) -> ArchivedInstance:
    (found,) = ArchivedQuery(str(checkpoint)).instances("count")
    return found


def told(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = cli.main([*command, "--json"])
    said = capsys.readouterr().out
    return code, json.loads(said) if said else None


def lacking_of(checkpoint: Path, row: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Why it cannot be had how a row was made; "" where it is explained."""
    _, said = told(capsys, "explain", str(checkpoint), row)
    return str(said.get("lacking", ""))


def verified(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> dict[int, Any]:
    """Of each epoch, whether it is repeated, or else whether it was erased."""
    code, found = told(capsys, "archive", "verify", str(checkpoint))
    assert code == 0, found
    return {each["epoch"]: each["repeated"] or ("erased" if each["erased"] else each) for each in found}


def check_that_the_key_is_not_made_up(checkpoint: Path, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The row was made when the key came for the second time, behind the erasure."""
    assert "of the state that it began with, a key was erased" in lacking_of(checkpoint, row, capsys)
    assert verified(checkpoint, capsys)[3] == "erased"


def test_the_state_itself_says_up_to_where_it_serves(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    run(place, (KEY,), ("ann", "bob"), ("ann",))
    forget(place.checkpoint, capsys, KEY)
    assert bounds_in_states(instance_at(place.checkpoint)) == {0: 2}
    assert not note_of(place.checkpoint, instance_at(place.checkpoint).origin).exists()
    run(place, ("ann", KEY), (KEY, "bob"))
    (again,) = [each["clonos_id"] for each in place.rows() if each["k"] == KEY and each["n"] == 1]
    check_that_the_key_is_not_made_up(place.checkpoint, again, capsys)
    state = ["state", str(place.checkpoint), "--operator", "count", "--key", KEY, "--at", "3"]
    assert cli.main(state) == 0 and "{'n': 2}" in capsys.readouterr().out, "by the query's own state"

    earlier = Path(shutil.copytree(place.checkpoint, place.base / "of an earlier version"))
    as_earlier_version(earlier, instance_at(earlier))
    assert bounds_in_states(instance_at(earlier)) == {}
    check_that_the_key_is_not_made_up(earlier, again, capsys)

    for checkpoint in (place.checkpoint, earlier):
        forget(checkpoint, capsys, "bob")
        note_of(checkpoint, instance_at(checkpoint).origin).unlink(missing_ok=True)
        bounds = bounds_in_states(instance_at(checkpoint))
        assert bounds[1] == 2, (
            "it is stored behind the epoch of the other key, from the state that lacks the first"
        )
        check_that_the_key_is_not_made_up(checkpoint, again, capsys)
        assert verified(checkpoint, capsys)[2] is True
