"""A key is forgotten where something cannot be read that could be when it was decided what goes: nothing goes then, and
all is as it should be when the same command goes on where it can be read."""

from __future__ import annotations

import importlib
import shutil
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from archive_bytes import places_of
from streams import Place

from clonos import cli
from clonos.archive.erasing_steps import ErasureSteps
from clonos.storage.archive_keys import VARIABLE
from clonos.values.key_codec import pack

pytestmark = pytest.mark.spark

KEY = "eve-5b1c9e7d20"
MODULES = {
    "forget_of_see": """
        def see(key, row, ctx):
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            yield row.k, ctx.state["n"]
    """,
    "forget_of_total": """
        def total(key, row, ctx):
            ctx.state["total"] = ctx.state.get("total", 0) + 1
            yield row.k, ctx.state["total"]
    """,
}
MODULES_HINT = "run this where the modules of the query are"
KEY_HINT = f"Name the file with the key: {VARIABLE}=/path"


class Killed(BaseException):
    pass


class Archived:
    """A query with an archive that two keys have encrypted, one behind the other, and functions in two modules."""

    def __init__(self, place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checkpoint = place.checkpoint
        self._kept = folder / "kept"
        self._monkeypatch = monkeypatch
        self._modules = folder / "modules"
        self._modules.mkdir()
        for name, text in MODULES.items():
            self.bring_back(name)
            self._path(name).write_text("\n".join(line[8:] for line in text.splitlines()))
        monkeypatch.syspath_prepend(str(self._modules))
        keys = {name: b64encode(name.encode().ljust(32)).decode() for name in ("old", "new")}
        self.key_files = {name: str(folder / f"{name}.keys") for name in ("old", "new", "both")}
        for name, text in {**keys, "both": f"{keys['new']}\n{keys['old']}"}.items():
            Path(self.key_files[name]).write_text(text)
        place.spark.conf.set("spark.clonos.archive.keep", "1 day")
        for name in ("old", "both"):
            place.spark.conf.set("spark.clonos.archive.keyFile", self.key_files[name])
            self._run(place)
        self.has_keys("both")
        shutil.copytree(self.checkpoint, self._kept)

    def _run(self, place: Place) -> None:
        """The key comes in epochs at whose ends there is no state, and what is kept goes on behind them."""
        see, total = (
            getattr(importlib.import_module(f"forget_of_{name}"), name) for name in ("see", "total")
        )
        columns = "k string, n long"
        seen = place.causal("k string", partitions=1).groupBy("k").process(see, columns, name="see")
        place.start(seen.groupBy("n").process(total, columns, name="total"))
        for keys in ((KEY, "ann"), ("bob",), (KEY, "ann"), ("ann", "bob")):
            before = len(place.rows())
            place.write([{"k": key} for key in keys], partitions=1)
            place.await_rows(before + len(keys))
            place.await_epochs()
        place.stop()

    def _path(self, module: str) -> Path:
        return self._modules / f"{module}.py"

    def put_back(self) -> None:
        """The archive as the query has left it."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self._kept, self.checkpoint)

    def lose(self, module: str) -> None:
        self._path(module).rename(self._path(module).with_suffix(".lost"))
        self._forget_imported(module)

    def bring_back(self, module: str) -> None:
        if self._path(module).with_suffix(".lost").exists():
            self._path(module).with_suffix(".lost").rename(self._path(module))
        self._forget_imported(module)

    def _forget_imported(self, module: str) -> None:
        sys.modules.pop(module, None)
        shutil.rmtree(self._modules / "__pycache__", ignore_errors=True)
        importlib.invalidate_caches()

    def has_keys(self, name: str) -> None:
        self._monkeypatch.setenv(VARIABLE, self.key_files[name])

    def forget(self, *more: str) -> int:
        at = str(self.checkpoint)
        return cli.main(["archive", "forget", at, "--operator", "see", "--key", KEY, "--yes", *more])

    def is_killed_when_it_is_decided(self) -> None:
        with self._monkeypatch.context() as until_then:
            until_then.setattr(ErasureSteps, "carry_out", _killed)
            with pytest.raises(Killed):
                self.forget()
        assert self.has_begun

    @property
    def has_begun(self) -> bool:
        return (self.checkpoint / "clonos" / "archive" / "erasure.json.encrypted").exists()

    def contents(self) -> dict[Path, bytes]:
        """Of segments and states."""
        root = self.checkpoint / "clonos" / "archive"
        found = [
            *(root / "segments").rglob("*.*"),
            *(root / "state").rglob("files/*.*"),
            *(root / "state").rglob("manifests/*.*"),
        ]
        return {path: path.read_bytes() for path in found}


def _killed(steps: ErasureSteps) -> None:
    raise Killed


@pytest.fixture
def archived(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archived:
    return Archived(place, tmp_path, monkeypatch)


def verified(archived: Archived, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(["archive", "verify", str(archived.checkpoint)]) == 0
    return capsys.readouterr().out


def refused(archived: Archived, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """Nothing has gone; what it says."""
    before = archived.contents()
    capsys.readouterr()
    assert archived.forget(*more) == 1
    after = archived.contents()
    assert {path: after.get(path) for path in before} == before
    return capsys.readouterr().err


def test_without_the_modules(archived: Archived, capsys: pytest.CaptureFixture[str]) -> None:
    assert archived.forget() == 0
    wanted = verified(archived, capsys)
    assert "see[0] epoch 1: 1 records, repeated" in wanted and "was erased" in wanted
    for module, named in (("forget_of_see", "see[0]"), ("forget_of_total", "total[0]")):
        archived.put_back()
        archived.lose(module)
        said = refused(archived, capsys)
        assert MODULES_HINT in said and "--erase-unknown" in said and named in said, said
        assert not archived.has_begun

        archived.bring_back(module)
        archived.is_killed_when_it_is_decided()
        archived.lose(module)
        for _ in range(2):
            said = refused(archived, capsys)
            assert MODULES_HINT in said and "the erasure does not go on: " in said and named in said, said
            assert archived.has_begun
        archived.bring_back(module)
        assert archived.forget() == 0
        assert verified(archived, capsys) == wanted
    archived.put_back()
    archived.is_killed_when_it_is_decided()
    archived.lose("forget_of_see")
    assert archived.forget("--erase-unknown") == 0
    assert not archived.has_begun
    assert places_of(archived.checkpoint, KEY.encode(), pack((KEY,))) == []


def test_what_is_lost_while_it_is_done(
    archived: Archived, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a first run, between the search and the erasure."""
    assert archived.forget() == 0
    wanted = verified(archived, capsys)
    archived.put_back()
    carry_out: Callable[[Any], None] = ErasureSteps.carry_out

    def lost_before(steps: ErasureSteps) -> None:
        archived.lose("forget_of_see")
        carry_out(steps)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(ErasureSteps, "carry_out", lost_before)
        assert "the erasure does not go on: " in refused(archived, capsys)
    archived.bring_back("forget_of_see")
    assert archived.forget() == 0
    assert verified(archived, capsys) == wanted


def test_without_one_of_the_keys(archived: Archived, capsys: pytest.CaptureFixture[str]) -> None:
    assert archived.forget() == 0
    wanted = verified(archived, capsys)
    for lacks in ("new", "old"):
        archived.put_back()
        archived.has_keys(lacks)
        said = refused(archived, capsys)
        assert KEY_HINT in said and "--erase-unknown" not in said and "modules" not in said, said
        archived.has_keys("both")
        archived.is_killed_when_it_is_decided()
        archived.has_keys(lacks)
        said = refused(archived, capsys)
        assert KEY_HINT in said and "--erase-unknown" not in said and "modules" not in said, said
        archived.has_keys("both")
        assert archived.forget() == 0
        assert verified(archived, capsys) == wanted
