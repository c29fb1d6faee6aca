"""An archive that is encrypted at rest: nothing of it is read without the key, all of it with, whatever was before."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from modes import mostly
from streams import Place

import clonos
from clonos import cli
from clonos.errors import ConfigurationError
from clonos.storage.archive_keys import VARIABLE, read_keys
from clonos.storage.encrypted_file import HEADER_BYTES, MAGIC, key_id
from clonos.storage.encrypted_medium import SUFFIX

pytestmark = pytest.mark.spark

KEEP, KEY_FILE = "spark.clonos.archive.keep", "spark.clonos.archive.keyFile"


def count(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    yield row.k, ctx.state["n"], ctx.random.random()


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Files: of the old key, of the new one, and of both."""
    text = {name: b64encode(name.encode().ljust(32)).decode() for name in ("old", "new")}
    text["both"] = f"# the first writes\n{text['new']}\n{text['old']}\n"
    for name, content in text.items():
        (tmp_path / f"{name}.keys").write_text(content)
    return {name: str(tmp_path / f"{name}.keys") for name in text}


def starts(place: Place, mode: str, key_file: str) -> None:
    place.spark.conf.set(KEEP, "1 day")
    place.spark.conf.set(KEY_FILE, key_file)
    counted = place.causal("k string").groupBy("k").process(count, "k string, n long, r double", name="count")
    place.start(counted, mode)


def run(place: Place, mode: str, key_file: str, *, has_all: bool = True) -> dict[str, Any]:
    """One epoch or more with a replica lost in between; the last row. `has_all`: the keys of what was before, too."""
    starts(place, mode, key_file)
    before = len(place.rows())
    for at in range(2):
        place.write([{"k": "a"}, {"k": "b"}])
        place.await_rows(before + 2 * at + 2)
        if at == 0:
            place.kill(2, 0)
    place.await_epochs()
    query, rows = place.query, place.rows()
    if has_all:
        said = query.explain_row(rows[-1]["clonos_id"])
        assert said["row"]["r"] == rows[-1]["r"], said
    else:  # of the first epoch: before the next one there may be a state under the new key
        said = query.explain_row(rows[before]["clonos_id"])
        assert "is encrypted with a key" in said["lacking"]
    place.stop()
    return rows[-1]


def explained(place: Place, capsys: pytest.CaptureFixture[str], row: dict[str, Any], code: int = 0) -> Any:
    capsys.readouterr()
    assert cli.main(["explain", str(place.checkpoint), row["clonos_id"], "--json"]) == code
    said = capsys.readouterr()
    return json.loads(said.out) if said.out else said.err


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_an_archive_is_read_with_its_keys_only(
    place: Place,
    keys: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    archive = place.checkpoint / "clonos" / "archive"
    plain = run(place, mode, "")
    before = set(archive.rglob("*"))
    assert before and not [path for path in before if path.name.endswith(SUFFIX)]
    old = run(place, mode, keys["old"])
    written = [path for path in archive.rglob("*") if path.is_file() and path not in before]
    assert {path.parent.name for path in written} >= {"0", "keys", "programs", "manifests", "files"}
    assert all(path.name.endswith(SUFFIX) and path.read_bytes().startswith(MAGIC) for path in written)

    with pytest.raises(ConfigurationError, match="the query has no key for it") as refused:
        starts(place, mode, "")
    assert refused.value.hint is not None and f"Set {KEY_FILE}" in refused.value.hint
    with pytest.raises(ConfigurationError, match="cannot be read here"):
        starts(place, mode, keys["old"] + ".lost")
    new = run(place, mode, keys["new"], has_all=False)

    said = explained(place, capsys, new, code=1)
    assert "not given here" in said and f"{VARIABLE}=/path" in said
    place.spark.conf.unset(KEY_FILE)
    with pytest.raises(ConfigurationError, match="not given here"):
        clonos.lineage(place.spark, str(place.checkpoint))
    monkeypatch.setenv(VARIABLE, keys["both"])
    for row in (plain, old, new):
        said = explained(place, capsys, row)
        assert said["row"] == {name: value for name, value in row.items() if name != "clonos_id"}
    monkeypatch.setenv(VARIABLE, keys["new"])
    said = explained(place, capsys, old, code=1)
    assert "is encrypted with a key" in json.dumps(said), said

    monkeypatch.delenv(VARIABLE)
    place.spark.conf.set(KEY_FILE, keys["both"])
    rows = {row["clonos_id"] for row in place.rows()}
    lineage = clonos.lineage(place.spark, str(place.checkpoint)).collect()
    assert {each.row for each in lineage} == rows
    assert all(each.input for each in lineage)


def written_with(place: Place) -> set[str]:
    """The ids of the keys of all files that are encrypted; "" of those that are not."""
    found = set()
    for path in (place.checkpoint / "clonos" / "archive").rglob("*"):
        if path.is_file() and path.parent.name != "keys":
            is_encrypted = path.name.endswith(SUFFIX)
            found.add(key_id(path.read_bytes()[:HEADER_BYTES]).hex() if is_encrypted else "")
    return found


def forget(place: Place, capsys: pytest.CaptureFixture[str], key: str) -> None:
    """A key, of which an instance was killed while it wrote something."""
    archive = place.checkpoint / "clonos" / "archive"
    left = [archive / "tmp" / "2-0-12345-0", *(archive / "state/2" / each / "tmp" / "1" for each in "01")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(key.encode())
    capsys.readouterr()
    command = ["archive", "forget", str(place.checkpoint), "--operator", "count", "--key", key, "--yes"]
    assert cli.main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"]
    assert not [path for path in left if path.exists()]


def test_a_command_writes_as_the_archive_is(
    place: Place, keys: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keys it is given: only a start of the query takes one into use."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for key_file in ("", "old"):
        starts(place, "microbatch", keys.get(key_file, ""))
        for each in ("a", "b", "c"):
            before = len(place.rows())
            place.write([{"k": f"{each}{key_file}"}, {"k": "a"}])
            place.await_rows(before + 2)
        place.finish()
        monkeypatch.setenv(VARIABLE, keys["both" if key_file else "new"])
        known = {read_keys(keys["old"]).all[0].id.hex()} if key_file else set()
        forget(place, capsys, f"b{key_file}")
        assert written_with(place) == {"", *known}
        in_use = place.checkpoint.glob("clonos/archive/keys/*")
        assert {path.name.removesuffix(SUFFIX) for path in in_use} == known
        monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv(VARIABLE, keys["old"])
    capsys.readouterr()
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0, capsys.readouterr().out
