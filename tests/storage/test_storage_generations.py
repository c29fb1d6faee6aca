"""Claims and leases in a checkpoint: exclusive where the storage can, safe where it cannot, read by every version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from obstore.store import LocalStore
from pyarrow import fs

from clonos.errors import AlreadyRunning, CheckpointMismatch
from clonos.protocol.roles.leadership import Claim, Leadership, Lease
from clonos.spark import leadership
from clonos.spark.leadership import DriverLeadership, carry_out
from clonos.storage.folder import Folder
from clonos.storage.generations import Generations, Machine
from clonos.storage.object_store import ObjectStore
from clonos.storage.sealed import sealed

HERE = Machine("this boot", (1, 2))


class Remote(fs.FileSystemHandler):  # type: ignore[misc]
    """A local directory that does not look like one: no links, no exclusive creation."""

    def __init__(self, root: Path) -> None:
        self._fs = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())

    def __getattr__(self, name: str) -> object:
        return getattr(self._fs, name)

    def get_type_name(self) -> str:
        return "remote"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> object:
        return self._fs.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> object:
        return self._fs.get_file_info(selector)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._fs.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self._fs.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self._fs.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._fs.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self._fs.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self._fs.copy_file(src, dest)

    def open_input_stream(self, path: str) -> object:
        return self._fs.open_input_stream(path)

    def open_input_file(self, path: str) -> object:
        return self._fs.open_input_file(path)

    def open_output_stream(self, path: str, metadata: object) -> object:
        return self._fs.open_output_stream(path)

    def open_append_stream(self, path: str, metadata: object) -> object:
        return self._fs.open_append_stream(path)


def folder(root: Path, *, kind: str, tag: str = "a") -> Folder:
    if kind == "objects":
        (root / "objects").mkdir(exist_ok=True)
        objects = LocalStore(root / "objects")
        return Folder(ObjectStore("local://objects", objects, objects), "clonos", tag=tag)
    if kind == "arrow":
        return Folder(fs.PyFileSystem(Remote(root)), "clonos", tag=tag)
    return Folder(fs.LocalFileSystem(), str(root / "clonos"), tag=tag)


def shelf(root: Path, *, kind: str, tag: str = "a", machine: Machine = HERE) -> Generations:
    return Generations(folder(root, kind=kind, tag=tag), machine, {"host": "here", "pid": 1})


@pytest.mark.parametrize("kind", ["host", "arrow", "objects"])
def test_claims_and_leases_come_back(tmp_path: Path, kind: str) -> None:
    one, two = shelf(tmp_path, kind=kind), shelf(tmp_path, kind=kind, tag="b")
    mine, other = Claim(3, "a" * 32), Claim(3, "b" * 32)
    assert one.claim(mine) and two.claims() == [mine]
    exclusive = kind != "arrow"
    assert two.claim(other) is not exclusive, "where it can be, a claim is exclusive"
    assert set(one.claims()) == ({mine} if exclusive else {mine, other})
    if not exclusive:
        two.withdraw(other)
    lease = Lease(mine.owner, 4, 10.0, holder="process 1 on host here")
    one.keep(lease)
    assert two.leases([mine.owner, other.owner]) == {mine.owner: lease}
    one.forget([mine], [])
    assert one.claims() == [] and one.leases([mine.owner]) == {}


def test_the_number_of_the_format_before_is_the_floor(tmp_path: Path) -> None:
    (tmp_path / "clonos").mkdir()
    (tmp_path / "clonos" / "generation").write_bytes(sealed({"generation": 41}))
    rules = Leadership(shelf(tmp_path, kind="host"), "a" * 32, "me")
    assert [carry_out(rules.campaign()) for _ in range(2)] == [42, 43]
    (tmp_path / "clonos" / "generation").write_text("")
    with pytest.raises(CheckpointMismatch, match="generation is empty"):
        carry_out(Leadership(shelf(tmp_path, kind="host"), "b" * 32, "me").campaign())


def test_a_damaged_claim_is_refused(tmp_path: Path) -> None:
    carry_out(Leadership(shelf(tmp_path, kind="host"), "a" * 32, "me").campaign())
    (path,) = (tmp_path / "clonos" / "generations").iterdir()
    said = json.loads(path.read_text())
    said["body"]["owner"] = "b" * 32
    path.write_text(json.dumps(said))
    with pytest.raises(CheckpointMismatch, match=f"{path.name} is damaged: it fails its checksum"):
        shelf(tmp_path, kind="host").claims()


def test_an_empty_claim_is_mended_as_its_error_says(tmp_path: Path) -> None:
    """Nothing that it says is needed when its driver has ended, but its number must not be given again."""
    first = Leadership(shelf(tmp_path, kind="host"), "a" * 32, "me")
    assert [carry_out(first.campaign()) for _ in range(2)] == [1, 2]
    first.release()
    older, newest = sorted((tmp_path / "clonos" / "generations").iterdir())
    newest.write_bytes(b"")
    with pytest.raises(
        CheckpointMismatch, match=f"{newest.name} is empty.*copy the file of another start"
    ) as raised:
        shelf(tmp_path, kind="host").claims()
    assert "begin anew" not in str(raised.value)
    newest.write_bytes(older.read_bytes())
    assert carry_out(Leadership(shelf(tmp_path, kind="host"), "b" * 32, "me").campaign()) == 3


def test_only_a_lock_on_the_same_file_proves_a_death(tmp_path: Path) -> None:
    lease = Lease("a" * 32)
    shelf(tmp_path, kind="host").keep(lease)
    for machine, dead in (
        (HERE, True),
        (Machine("another boot", (1, 2)), False),
        (Machine("this boot", (1, 3)), False),
    ):
        looking = shelf(tmp_path, kind="host", machine=machine)
        looking.leases([lease.owner])
        assert looking.is_dead(lease) is dead
    unknown = Machine("", (1, 2))
    shelf(tmp_path, kind="host", machine=unknown).keep(lease)
    looking = shelf(tmp_path, kind="host", machine=unknown)
    looking.leases([lease.owner])
    assert not looking.is_dead(lease)


class MadeMeanwhile(Remote):
    """A directory is made while Arrow looks for it: it fails to list it, and then finds that it is there."""

    def get_file_info_selector(self, selector: fs.FileSelector) -> object:
        if self._fs.get_file_info(selector.base_dir).type is fs.FileType.NotFound:
            self._fs.create_dir(selector.base_dir)
            with self._fs.open_output_stream(f"{selector.base_dir}/one") as made:
                made.write(b"1")
            raise FileNotFoundError(2, f"Cannot list directory '{selector.base_dir}'")
        return super().get_file_info_selector(selector)


def test_a_directory_that_is_made_while_it_is_listed_is_no_error(tmp_path: Path) -> None:
    folder = Folder(fs.PyFileSystem(MadeMeanwhile(tmp_path)), "clonos", tag="t")
    assert folder.sizes("generations") == {"one": 1}


@pytest.mark.parametrize("kind", ["host", "arrow", "objects"])
def test_many_at_once_get_different_numbers(tmp_path: Path, kind: str) -> None:
    """All of them lead, as they would if leases were not looked at; only the claims keep them apart."""

    def start(at: int) -> list[int]:
        owner = f"{at:032x}"
        kept = shelf(tmp_path, kind=kind, tag=owner)
        given = []
        for _ in range(3):
            kept.leases = lambda owners: {one: Lease(one, released=True) for one in owners}  # type: ignore[method-assign]
            given.append(carry_out(Leadership(kept, owner, owner).campaign()))
        return given

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for given in pool.map(start, range(4)) for number in given]
    assert len(numbers) == 12 and len(set(numbers)) == 12


def kept(checkpoint: Path) -> dict[str, bytes]:
    """All but what the leader itself renews."""
    return {
        str(path): path.read_bytes()
        for path in (checkpoint / "clonos").rglob("*")
        if path.is_file() and not {"leases", "tmp"} & set(path.parts)
    }


def test_a_second_driver_on_the_host_is_refused_and_touches_nothing(tmp_path: Path) -> None:
    first = DriverLeadership(str(tmp_path))
    assert first.take() == 1
    before = kept(tmp_path)
    with pytest.raises(
        AlreadyRunning, match=r"running already: process \d+ on host .* since \d{4}-"
    ) as raised:
        DriverLeadership(str(tmp_path)).take()
    assert "also while it is paused" in str(raised.value)
    assert kept(tmp_path) == before
    first.check()
    first.release()
    second = DriverLeadership(str(tmp_path))
    assert second.take() == 2
    second.release()


LEAD = """
import sys
from clonos.spark.leadership import DriverLeadership
print(DriverLeadership(sys.argv[1]).take(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_driver_is_not_waited_for_and_a_stopped_one_is_not_passed_over(
    tmp_path: Path, sent: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock says which it is. A process that stands still has the data directory, and may go on."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment}
    with subprocess.Popen([sys.executable, "-c", LEAD, str(tmp_path)], **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == b"1\n"
        first.send_signal(sent)
        passed = 0.0

        def count(steps: leadership.Steps[int]) -> int:
            nonlocal passed
            try:
                while True:
                    passed += next(steps)
            except StopIteration as end:
                return int(end.value)

        second = DriverLeadership(str(tmp_path))
        try:
            if sent is signal.SIGKILL:
                first.wait()
                with monkeypatch.context() as patch:
                    patch.setattr(leadership, "carry_out", count)
                    assert second.take() == 2 and passed == 0
                second.release()
            else:
                with pytest.raises(AlreadyRunning, match=f"process {first.pid} on host"):
                    second.take()
        finally:
            first.kill()
