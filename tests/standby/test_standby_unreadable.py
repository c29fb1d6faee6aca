"""A determinant service that cannot read what it holds, or has too much to do, is asked again, never taken for one that
holds nothing; and what is damaged for good is said, beside what can still be read."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from standby_conduit import SPEC

from clonos.errors import RecoveryTimeout, StorageUnavailable, Where
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.holding import Damage, HolderReply
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.spark.upgrade import read_store, stores
from clonos.storage import salvage
from clonos.storage.log_store import LogStore
from clonos.wire.determinant_client import fetch
from clonos.wire.determinant_service import DeterminantServer
from clonos_standby.cluster.spec import QuerySpec, ReplicaSettings
from clonos_standby.cluster.spec_file import SpecFile
from clonos_standby.replica import holders
from clonos_standby.server.holdings import Holdings

ORIGIN, OWNER = Origin(2, 5), Origin(3, 0)
LOG = b"the past of an instance, in order" * 3
HERE = Where("ledger", 5, 7)
FEW_FILES = 48
AT_ONCE = 50


def delta(start: int, stop: int) -> bytes:
    return encode_delta([encode_entry(ORIGIN, start, stop - start, 1, LOG[start:stop])])


def written(data: Path, owner: Origin = OWNER) -> Path:
    """A store that was told of two pieces, and closed in a way that leaves tables."""
    path = data / "logs" / str(owner.node) / str(owner.instance)
    store = LogStore(str(path))
    store.append([delta(0, 10)], (0, b"its own"))
    store.append([delta(10, 30)], None)
    store.close()
    return path


def holdings(data: Path) -> Holdings:
    return Holdings(data / "logs", "here", LogStore.read_only)


def look(data: Path) -> HolderReply:
    return holdings(data).lookup(ORIGIN, 0)


@contextmanager
def service(data: Path, *, files: int | None = None) -> Iterator[tuple[str, int]]:
    """The real process; its address and id."""
    data.mkdir(parents=True, exist_ok=True)
    spec = data / "spec.msgpack"
    SpecFile(spec, SPEC).write()
    limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "clonos_standby.server.determinant_process",
            "--spec",
            str(spec),
            "--data",
            str(data),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        preexec_fn=limit,
    )
    with process:
        assert process.stdout is not None and process.stdin is not None
        yield json.loads(process.stdout.readline())["address"], process.pid
        process.stdin.close()


def asked(address: str, *, deadline: float = 60.0) -> list[HolderReply]:
    spec = QuerySpec(
        query="tests",
        token=str(SPEC["token"]),
        checkpoint="",
        data="/nowhere",
        determinants=(address,),
        settings=ReplicaSettings(recovery_deadline=deadline),
    )
    return holders.ask(spec, ORIGIN, 0, where=HERE)


def test_fifty_recoveries_at_once_are_all_answered_by_a_service_with_few_files(tmp_path: Path) -> None:
    for instance in range(4):
        written(tmp_path, Origin(3, instance))
    with service(tmp_path, files=FEW_FILES) as (address, _), ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: asked(address), range(AT_ONCE)))
    assert [len(replies) for replies in answers] == [1] * AT_ONCE
    for (reply,) in answers:
        assert (reply.segments, reply.required, reply.damaged) == ([(0, LOG[:30])], 30, ())


def test_a_service_without_files_refuses_until_it_has_some_again(tmp_path: Path) -> None:
    written(tmp_path)
    with service(tmp_path) as (address, pid):
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, before[1]))
        with pytest.raises(RecoveryTimeout, match=f"no answer about the log of {ORIGIN} .* from {address}"):
            asked(address, deadline=3.0)
        answers: list[HolderReply] = []
        recovering = threading.Thread(target=lambda: answers.extend(asked(address)))
        recovering.start()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        recovering.join()
    assert [(reply.segments, reply.required) for reply in answers] == [([(0, LOG[:30])], 30)]


def test_more_than_it_takes_at_once_are_refused_and_come_again() -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def slow(origin: Origin, start: int) -> HolderReply:
        begun.release()
        release.wait(120)
        return HolderReply("slow", [(0, LOG)])

    with (
        DeterminantServer(slow, str(SPEC["token"]), threads=1, at_once=1) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        first = pool.submit(asked, server.address)
        begun.acquire()
        refused = fetch([server.address], str(SPEC["token"]), *ORIGIN)
        assert refused.replies == {} and "RESOURCE_EXHAUSTED" in refused.unreachable[0].reason
        rest = [pool.submit(asked, server.address) for _ in range(7)]
        release.set()
        assert [one.result() for one in [first, *rest]] == [[HolderReply("slow", [(0, LOG)])]] * 8


def test_a_reply_that_breaks_off_counts_for_nothing() -> None:
    pages = iter([0])

    def breaks(origin: Origin, start: int) -> HolderReply:
        if next(pages, None) is None:
            raise StorageUnavailable("the disk is away")
        return HolderReply("h", [(0, LOG)], 99)

    with DeterminantServer(breaks, str(SPEC["token"]), page_bytes=10) as server:
        fetched = fetch([server.address], str(SPEC["token"]), *ORIGIN)
    assert fetched.replies == {} and "the disk is away" in fetched.unreachable[0].reason


def no_more_files(*given: object, **options: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("call", ["listdir", "scandir", "stat"])
def test_what_cannot_be_looked_at_makes_no_reply(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    held = holdings(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(StorageUnavailable, match="Too many open files"):
        patch.setattr(os, call, no_more_files)
        held.lookup(ORIGIN, 0)
    assert held.lookup(ORIGIN, 0).required == 30


def test_a_file_in_the_place_of_a_directory_makes_no_reply(tmp_path: Path) -> None:
    written(tmp_path)
    shutil.rmtree(tmp_path / "logs" / "3" / "0")
    (tmp_path / "logs" / "3" / "0").write_text("not a directory")
    with pytest.raises(StorageUnavailable, match="logs/3/0"):
        look(tmp_path)


def test_a_store_that_is_just_being_replaced_makes_no_reply(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.rename(f"{path}{salvage.NEW}")
    with pytest.raises(StorageUnavailable, match="just being replaced"):
        look(tmp_path)
    salvage.finish(str(path))
    assert look(tmp_path).required == 30


def without_current(path: Path) -> None:
    (path / "CURRENT").unlink()


def with_half_a_manifest(path: Path) -> None:
    for manifest in path.glob("MANIFEST-*"):
        os.truncate(manifest, 10)


def with_an_empty_current(path: Path) -> None:
    os.truncate(path / "CURRENT", 0)


def with_damaged_tables(path: Path) -> None:
    for table in path.glob("*.sst"):
        raw = bytearray(table.read_bytes())
        raw[10:60] = bytes(50)
        table.write_bytes(raw)


@pytest.mark.parametrize("acts", [False, True])
@pytest.mark.parametrize(
    "strike", [without_current, with_half_a_manifest, with_an_empty_current, with_damaged_tables]
)
def test_what_is_damaged_is_said_with_whose_it_is(
    tmp_path: Path, strike: Callable[[Path], None], acts: bool
) -> None:
    path = written(tmp_path)
    if acts:
        salvage.note_that_it_acts(str(path))
    strike(path)
    reply = look(tmp_path)
    assert {(damage.owner, damage.acts) for damage in reply.damaged} == {(OWNER, acts)}
    with service(tmp_path) as (address, _):
        (over_grpc,) = asked(address)
    assert [replace(one, what="") for one in over_grpc.damaged] == [
        replace(one, what="") for one in reply.damaged
    ]


def test_what_can_be_read_of_a_damaged_store_comes_in_its_place(tmp_path: Path) -> None:
    path = written(tmp_path)
    store = LogStore(str(path))
    store.begin(Writer(7, 0))
    for number in range(30, 60):
        store.append([delta(number, number + 1)], (number - 23, LOG[:1]))
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)  # closing would write the log out of memory, whole
    store.close()
    shutil.rmtree(path)
    copy.rename(path)
    (ahead,) = path.glob("*.log")
    with open(ahead, "r+b") as file:
        file.seek(ahead.stat().st_size * 2 // 3)
        file.write(b"\xff" * 20)
    before = look(tmp_path)
    assert 30 < before.required < 60 and before.damaged
    said = salvage.salvage(str(path), str(tmp_path / "damaged" / "3-0-1"))
    assert (tmp_path / "damaged" / "3-0-1" / "CURRENT").exists()
    after = look(tmp_path)
    assert (after.segments, after.required) == (before.segments, before.required)
    assert [damage.owner for damage in after.damaged] == [OWNER] and said in after.damaged[0].what
    assert not read_store(path, [], [])  # what is gone may have been seen
    again = LogStore(str(path))
    assert again.incarnations() == (Writer(7, 0),) and again.end > 7
    assert again.whole_since("this boot") is None
    again.is_whole(5, "this boot")
    assert (again.whole_since("this boot"), again.whole_since("another")) == (5, None)
    assert again.damaged_before is None
    again.close()
    assert look(tmp_path).damaged == ()
    assert read_store(path, [], [])
    salvage.note_that_it_acts(str(path))
    path.with_name("4.new").mkdir()  # its owner has just begun to replace a store that is there
    path.with_name("4").mkdir()
    assert sorted(stores(str(tmp_path))) == [path, path.with_name("4")]
    path.rename(f"{path}.new")  # and died here
    (left,) = [store for store in stores(str(tmp_path)) if store.name.startswith("0")]
    own: list[tuple[Origin, Segment]] = []
    assert read_store(left, own, []) and {origin for origin, _ in own} == {OWNER}


def test_who_holds_something_is_never_guessed(tmp_path: Path) -> None:
    spec = QuerySpec(query="q", token="t", checkpoint="", data=str(tmp_path), determinants=("driver:1",))
    assert holders.services(spec) == ["driver:1"]
    one_host = replace(spec, servers=2)
    with pytest.raises(StorageUnavailable, match="server 0"):
        holders.services(one_host)
    (tmp_path / holders.PORT_FILE).write_text("7000")
    with pytest.raises(StorageUnavailable, match="server 1"):
        holders.services(one_host)
    (tmp_path / "server-1").mkdir()
    (tmp_path / "server-1" / holders.PORT_FILE).write_text("7001")
    assert holders.services(one_host) == ["driver:1", "127.0.0.1:7000", "127.0.0.1:7001"]
    several = replace(spec, told=True)
    with pytest.raises(StorageUnavailable, match=r"holders\.json"):
        holders.services(several)
    holders.tell(tmp_path, ["a:1", "b:2"])
    assert holders.services(several) == ["a:1", "b:2"]
    path = tmp_path / holders.HOLDERS_FILE
    path.write_text(path.read_text().replace("b:2", "b:3"))
    with pytest.raises(StorageUnavailable, match="fails its checksum"):
        holders.services(several)
    path.write_text('["a:1"]')
    assert holders.services(several) == ["a:1"], "as it was written before it had a version"


def test_while_the_holders_are_unknown_no_recovery_goes_on(tmp_path: Path) -> None:
    settings = ReplicaSettings(recovery_deadline=0.2)
    spec = QuerySpec(query="q", token="t", checkpoint="", data=str(tmp_path), told=True, settings=settings)
    for spent in (0.0, 1000.0):  # a recovery that has used its time up asks all the same
        with pytest.raises(RecoveryTimeout, match=r"the list of holders .*holders\.json"):
            holders.ask(spec, ORIGIN, 0, where=HERE, spent=spent)


def test_damage_matters_to_whom_something_out_in_the_world_may_depend_on() -> None:
    assert Damage("a sink's log").may_say(Origin(2, 0))
    acting = Damage("a page", Origin(3, 1), acts=True)
    assert [acting.may_say(Origin(*one)) for one in ((2, 0), (3, 1), (3, 0), (4, 0))] == [
        True,
        True,
        False,
        False,
    ]
    assert not Damage("a page", Origin(3, 1), acts=False).may_say(Origin(2, 0))
