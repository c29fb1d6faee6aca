"""Checkpoints that are a whole one and transactions in a log of events."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from changing_state import ChangingState
from postgres_server import PostgresServer, postgres_server, why_not

from clonos.errors import CheckpointMismatch, ConfigurationError, SnapshotCorrupt, StorageUnavailable
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, InstanceId, NodeId, Origin, OutputNumber
from clonos.protocol.line.snapshot_name import SnapshotName, superseded
from clonos.storage import event_logs, increment
from clonos.storage.event_files import EventFiles
from clonos.storage.event_logs import Transaction, entries, entry
from clonos.storage.event_medium import EventMedium
from clonos.storage.event_place import EventPlace, check_place, keep_place
from clonos.storage.event_tables import TABLE, EventTables, checked_url
from clonos.storage.increment import Increment
from clonos.storage.keyed_state import KeyedState
from clonos.storage.manifest import Manifest
from clonos.storage.sent_log import SentRows
from clonos.storage.snapshots import SnapshotStore

EPOCH = Epoch(0)


def beside(base: Path) -> EventFiles:
    return EventFiles(str(base / "root" / "events"))


class Instance(ChangingState):
    """With its checkpoints."""

    def __init__(self, base: Path, fence: int, medium: Callable[[Path], EventMedium] = beside) -> None:
        self.base, self.fence = base, fence
        self.store = SnapshotStore(
            str(base / "root"),
            fence=Fence.of(fence),
            pending=str(base / "pending"),
            events=medium(base),
            appends=True,
        )

    def begin(self) -> Manifest | None:
        """Where its predecessor was, as a replacement does."""
        self.store.claim()
        found = self.store.latest(epoch=EPOCH, final_only=False)
        if found is not None:
            self.store.restore(found, str(self.path))
        self.open(self.path, Increment(is_logged=True))
        return found

    @property
    def path(self) -> Path:
        return self.base / f"state-{self.fence}"

    def take(self, sequence: int, *, final: bool = False) -> Manifest:
        pending = self.store.begin(self.state, b"%d" % sequence, epoch=EPOCH, sequence=sequence, final=final)
        return self.store.finish(pending)

    def close(self) -> None:
        self.state.close()


def looking(base: Path, medium: Callable[[Path], EventMedium] = beside) -> SnapshotStore:
    """As the driver does."""
    return SnapshotStore(str(base / "root"), fence=LOWEST_FENCE, pending=None, events=medium(base))


def logs(base: Path) -> list[Path]:
    return sorted((base / "root" / "events").glob("*"))


@pytest.fixture
def tables(postgres: PostgresServer) -> Callable[..., EventTables]:
    url = checked_url(postgres.fresh_database())
    EventTables(url, "").create()
    return partial(EventTables, url)


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), "files"])
def medium(request: pytest.FixtureRequest) -> Callable[[Path], EventMedium]:
    if request.param == "files":
        return beside
    tables: Callable[..., EventTables] = request.getfixturevalue("tables")
    return lambda base: tables("checkpoint/2/0")


@pytest.mark.parametrize("seed", range(6))
def test_every_checkpoint_is_begun_with_as_it_was(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, medium: Callable[[Path], EventMedium]
) -> None:
    """By replacements of replacements, with whole ones in between, and each that counts, not only the last."""
    monkeypatch.setattr(increment, "_MOST_LOGGED_BYTES", 20_000)
    monkeypatch.setattr(event_logs, "MOST_TRANSACTIONS", 7)
    rng, sequence, whole, contents = Random(seed), 0, 0, {}
    reader = looking(tmp_path, medium)
    for fence in range(1, 6):
        instance = Instance(tmp_path, fence, medium)
        found = instance.begin()
        if contents:
            assert found is not None and found.sequence == sequence - 1
            assert instance.content() == contents[found.name]
        for _ in range(rng.randint(1, 20)):
            instance.change(rng, sequence)
            manifest = instance.take(sequence)
            contents[manifest.name] = instance.content()
            whole += not any(file.path == increment.FILE for file in manifest.files)
            sequence += 1
            known = reader.names_of_all_attempts(EPOCH)
            assert known[-1] == manifest.name and reader.meta(known[-1]) == manifest.meta
        instance.change(rng, sequence)  # what is behind the last checkpoint is lost
        instance.close()
        for number, name in enumerate(reader.manifests()):
            there = reader.readable(name)
            assert there is not None and reader.meta(name) == there.meta
            target = tmp_path / f"looked-at-{fence}-{number}"
            reader.restore(there, str(target))
            state = KeyedState(str(target))
            assert list(SentRows(state).since(OutputNumber(0))) == contents[name][-1]
            state.close()
    assert 5 <= whole < sequence
    assert 0 < len(medium(tmp_path).logs()) < 6


def test_the_end_of_an_epoch_ends_its_logs_when_it_is_forgotten(tmp_path: Path) -> None:
    instance = Instance(tmp_path, 1)
    instance.begin()
    for sequence in range(6):
        instance.state.put(b"key", sequence)
        instance.take(sequence)
    instance.take(6, final=True)
    assert logs(tmp_path)
    instance.store.forget(before_epoch=Epoch(EPOCH + 1))
    assert not logs(tmp_path)
    assert [str(name)[-14:] for name in instance.store.manifests()] == ["final.manifest"]
    instance.close()


def test_what_another_attempt_left_of_an_epoch_that_is_run_again_goes(tmp_path: Path) -> None:
    first, second = Instance(tmp_path, 1), Instance(tmp_path, 2)
    first.begin()
    for sequence in range(3):
        first.take(sequence)
    first.close()
    second.store.discard_from(EPOCH)
    assert not logs(tmp_path) and not second.store.manifests() and not looking(tmp_path).manifests()


def test_media_do_the_same(tmp_path: Path, medium: Callable[[Path], EventMedium]) -> None:
    first, second = medium(tmp_path), medium(tmp_path)
    assert first.logs() == {}
    for act in (lambda: first.read("log", 0), lambda: EventFiles(str(tmp_path)).sync("log")):
        with pytest.raises(FileNotFoundError):
            act()
    first.append("log", 0, b"first")
    first.append("log", 5, b"second")
    first.append("log", 5, b"second")  # said again
    first.append("other", 0, b"x")
    assert second.logs() == {"log": 11, "other": 1}
    assert (second.read("log", 0), second.read("log", 5), second.read("log", 11)) == (
        b"firstsecond",
        b"second",
        b"",
    )
    assert (second.read("log", 0, 5), second.read("log", 5, 11)) == (b"first", b"second")
    second.sync("log")
    second.delete("log")
    second.delete("log")
    assert first.logs() == {"other": 1}
    first.append("next", 0, b"y")
    assert second.read("next", 0) == b"y"


@pytest.mark.postgres
def test_owners_have_logs_of_their_own_and_a_row_that_is_lost_ends_one(
    tables: Callable[..., EventTables],
) -> None:
    one, other = tables("a/2/0"), tables("a/2/1")
    for at in range(3):
        one.append("log", at, b"x")
    other.append("log", 0, b"other")
    assert other.read("log", 0) == b"other"
    one._run(
        "removing", lambda connection: connection.execute(sa.delete(TABLE).where(TABLE.c.starts_at == 1))
    )
    assert one.read("log", 0) == b"x"
    one.delete("log")
    assert other.logs() == {"log": 5}


@pytest.mark.postgres
def test_two_that_write_one_log_are_found_out(tables: Callable[..., EventTables]) -> None:
    one, other = tables("a"), tables("a")
    one.append("log", 0, b"one")
    with pytest.raises(CheckpointMismatch, match="which this process has not written"):
        other.append("log", 0, b"two")
    assert one.read("log", 0) == b"one"


@pytest.mark.postgres
def test_a_copy_of_a_checkpoint_has_logs_of_its_own(
    tmp_path: Path, tables: Callable[..., EventTables], caplog: pytest.LogCaptureFixture
) -> None:
    url, origin = checked_url(tables.args[0]), Origin(NodeId(2), InstanceId(0))  # type: ignore[attr-defined]
    original = keep_place(str(tmp_path / "original"), url)
    assert keep_place(str(tmp_path / "original"), url) == original and not caplog.text
    own = original.medium(origin)
    assert own is not None
    own.append("log", 0, b"x")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    copied = EventPlace.of(str(tmp_path / "copy"))
    assert copied.owner == original.owner
    other = keep_place(str(tmp_path / "copy"), url).medium(origin)
    assert other is not None and other.logs() == {} and "was copied, or restored from a copy" in caplog.text
    assert keep_place(str(tmp_path / "original"), url) == original
    os.rename(tmp_path / "original", tmp_path / "renamed")
    assert keep_place(str(tmp_path / "renamed"), url).owner == original.owner
    shutil.copytree(tmp_path / "copy", tmp_path / "renamed", dirs_exist_ok=True)
    shutil.copytree(tmp_path / "renamed", tmp_path / "again")
    shutil.rmtree(tmp_path / "renamed")
    os.rename(tmp_path / "again", tmp_path / "renamed")
    assert keep_place(str(tmp_path / "renamed"), url).owner != original.owner


def test_behind_a_log_that_is_full_another_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_logs, "MOST_TRANSACTIONS", 4)
    instance = Instance(tmp_path, 1)
    instance.store.keep_from(0)  # as where an operator before has uncoordinated checkpoints
    instance.begin()
    kinds = []
    for sequence in range(15):
        instance.state.put(b"key", sequence)
        kinds.append(any(file.path == increment.FILE for file in instance.take(sequence).files))
    assert kinds == [at % 5 > 0 for at in range(15)]
    instance.close()


def test_a_log_that_never_had_an_entry_goes(tmp_path: Path) -> None:
    instance = Instance(tmp_path, 1)
    (tmp_path / "root" / "events").mkdir(parents=True)
    (tmp_path / "root" / "events" / str(SnapshotName(EPOCH, Fence.of(1), 0, final=False))).touch()
    instance.begin()
    instance.take(0)
    assert not logs(tmp_path)
    instance.close()


@pytest.mark.postgres
def test_a_connection_that_is_lost_at_once_is_made_again(
    tables: Callable[..., EventTables], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    real = sa.engine.Connection.exec_driver_sql

    def end_first(self: sa.engine.Connection, said: str, *args: Any) -> Any:
        if "synchronous_commit" in said and not ended:
            ended.append(said)
            real(self, "SELECT pg_terminate_backend(pg_backend_pid())")
        return real(self, said, *args)

    table = tables("a")
    with monkeypatch.context() as patch:
        patch.setattr(sa.engine.Connection, "exec_driver_sql", end_first)
        table.append("log", 0, b"x")
    assert table.read("log", 0) == b"x"
    table.close()
    table.append("log", 1, b"y")
    assert table.read("log", 0) == b"xy"


@pytest.mark.postgres
def test_several_create_the_table_at_once(postgres: PostgresServer) -> None:
    url = checked_url(postgres.fresh_database())
    with ThreadPoolExecutor(8) as pool:
        for created in [pool.submit(EventTables(url, "").create) for _ in range(8)]:
            created.result()


@pytest.mark.postgres
def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with postgres_server() as mortal:
        url = checked_url(mortal.fresh_database())
        EventTables(url, "").create()
        instance = Instance(tmp_path, 1, lambda base: EventTables(url, "a"))
        instance.begin()
        instance.take(0)
        mortal.crash()
        with pytest.raises(StorageUnavailable, match=r"writing .* failed"):
            EventTables(url, "a", patience=0.1).append("log", 0, b"")
        returns = threading.Timer(0.5, mortal.start)
        returns.start()
        instance.state.put(b"key", 1)
        instance.take(1)
        returns.join()
        instance.close()
        second = Instance(tmp_path, 2, lambda base: EventTables(url, "a"))
        assert second.begin() is not None
        assert second.state.get(b"key") == 1
        second.close()


@pytest.mark.postgres
def test_a_user_who_may_not_write_is_told_what_it_takes(tables: Callable[..., EventTables]) -> None:
    root = tables("a")
    for said in ("CREATE ROLE guest LOGIN", "GRANT SELECT ON clonos_events TO guest"):
        root._run("granting", lambda connection, said=said: connection.exec_driver_sql(said))  # type: ignore[misc]
    url = root._url.set(username="guest", drivername="postgresql").render_as_string()
    guest = EventTables(url, "a")
    assert guest.logs() == {}
    with pytest.raises(
        ConfigurationError, match=r"permission denied.*SELECT, INSERT, UPDATE and DELETE on table"
    ):
        guest.append("log", 0, b"x")
    root._run(
        "granting", lambda connection: connection.exec_driver_sql("GRANT ALL ON clonos_events TO guest")
    )
    guest.append("log", 0, b"x")  # as the hint says


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:secret@host/db", "has a password"),
        ("postgresql://me@host/db?password=secret", "has a password"),
        ("mysql://host/db", "names 'mysql'"),
        ("sqlite:///file", "names 'sqlite'"),
        ("postgresql://me@host/db?sslpassword=secret", "has a password"),
        ("postgresql://one:1,other:2/db", r"is no URL of a database.*host=one:5432&host=other"),
        ("nonsense", "is no URL of a database"),
    ],
)
def test_a_url_that_will_not_do_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        checked_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgres://me@host/db", "postgresql+psycopg://me@host/db"])
def test_ways_to_write_a_url_are_one(url: str) -> None:
    assert checked_url(url) == "postgresql://me@host/db"


@pytest.mark.parametrize("cut", [1, 9, 11, 200])
def test_what_was_being_written_when_a_process_died_does_not_count(tmp_path: Path, cut: int) -> None:
    first = Instance(tmp_path, 1)
    first.begin()
    lengths = []
    for sequence in range(4):
        first.state.put(b"key", "x" * 300)
        first.take(sequence)
        lengths.append(logs(tmp_path)[0].stat().st_size if logs(tmp_path) else 0)
    first.close()
    os.truncate(logs(tmp_path)[0], lengths[2] + cut)
    second = Instance(tmp_path, 2)
    found = second.begin()
    assert found is not None and found.sequence == 2 and not second.store.corrupt
    second.close()


def test_a_log_that_died_in_its_first_entry_is_none(tmp_path: Path) -> None:
    first = Instance(tmp_path, 1)
    first.begin()
    for sequence in range(2):
        first.take(sequence)
    first.close()
    os.truncate(logs(tmp_path)[0], 30)
    second = Instance(tmp_path, 2)
    found = second.begin()
    assert found is not None and found.sequence == 0
    second.take(1)
    assert not logs(tmp_path)
    second.close()


def test_damage_is_said_and_what_is_before_it_counts(tmp_path: Path) -> None:
    first = Instance(tmp_path, 1)
    first.begin()
    for sequence in range(4):
        first.state.put(b"key", "x" * 300)
        first.take(sequence)
    first.close()
    raw = bytearray(logs(tmp_path)[0].read_bytes())
    raw[-500] ^= 1  # in the last but one
    logs(tmp_path)[0].write_bytes(raw)
    second = Instance(tmp_path, 2)
    found = second.begin()
    assert found is not None and found.sequence == 1
    assert "is damaged at byte" in second.store.corrupt[0]
    second.close()


def test_a_transaction_that_could_not_be_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Instance(tmp_path, 1)
    instance.begin()
    instance.take(0)
    instance.state.put(b"key", 1)
    pending = instance.store.begin(instance.state, b"", epoch=EPOCH, sequence=1, final=False)
    real = os.pwrite
    with monkeypatch.context() as patch:

        def full(file: int, data: bytes, at: int) -> int:
            real(file, data[:5], at)
            raise OSError(28, "No space left on device")

        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            instance.store.finish(pending)
    instance.store.finish(pending)
    instance.state.put(b"key", 2)
    instance.take(2)
    instance.close()
    second = Instance(tmp_path, 2)
    assert second.begin() is not None
    assert second.state.get(b"key") == 2
    second.close()


def test_one_that_is_given_up_is_not_missed(tmp_path: Path) -> None:
    """What was changed in between is in the next one, which is whole."""
    instance = Instance(tmp_path, 1)
    instance.begin()
    instance.take(0)
    instance.state.put(b"key", 1)
    instance.store.abandon(instance.store.begin(instance.state, b"", epoch=EPOCH, sequence=1, final=False))
    instance.state.put(b"other", 2)
    instance.take(2)
    instance.close()
    second = Instance(tmp_path, 2)
    second.begin()
    assert (second.state.get(b"key"), second.state.get(b"other")) == (1, 2)
    second.close()


def test_what_counts_in_a_log_is_what_would_be_kept_and_what_is_marked() -> None:
    names = [SnapshotName(EPOCH, Fence.of(1), number, final=False) for number in range(60)]
    kept = [name for name in names if name not in superseded(names, names[-1])]
    found = event_logs.LoggedCheckpoints(most=100)
    found.add(event_logs.LogName("log"), names)
    assert list(found) == sorted({*kept, *(name for name in names if name.sequence % 16 == 0)})
    assert not found.drop(names[:-1])
    assert found.drop(names) == ["log"] and not list(found)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]) + entry(b"more"),
        lambda raw: b"\2" + raw[1:] + entry(b"more"),
    ],
)
def test_an_entry_that_is_damaged_is_said(damage: Callable[[bytes], bytes]) -> None:
    raw = entry(b"body")
    assert list(entries(raw + raw, "x")) == [(b"body", len(raw)), (b"body", 2 * len(raw))]
    with pytest.raises(SnapshotCorrupt, match="x is damaged at byte 0"):
        list(entries(damage(raw), "x"))
    for length in range(len(raw)):
        assert list(entries(raw + raw[:length], "x")) == [(b"body", len(raw))]
    assert list(entries(raw + bytes(4096), "x")) == [(b"body", len(raw))]


def test_the_bytes_of_an_entry_are_these() -> None:
    name = SnapshotName(Epoch(3), Fence.of(2), 5, final=False)
    said = Transaction(name, b"meta", b"changes")
    assert Transaction.from_bytes(said.to_bytes()) == said
    assert entry(b"body").hex() == "010004000000a8a67280626f6479"


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x90", b"\x93\xa1x\xc4\0\xc4\0", b"\x93\x01\x02\x03"])
def test_a_body_that_is_no_transaction_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Transaction.from_bytes(body)


def test_storage_that_is_not_appended_to_is_refused_with_what_could(
    tables: Callable[..., EventTables],
) -> None:
    with pytest.raises(
        ConfigurationError, match=r"has only such as are written once.*spark\.clonos\.events\.url"
    ):
        check_place("mock:///checkpoint", "")
    url = checked_url(tables.args[0])  # type: ignore[attr-defined]
    assert check_place("mock:///checkpoint", url) == url
