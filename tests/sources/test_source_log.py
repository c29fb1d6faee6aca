"""The embedded log on disk: its bytes, its torn tails, its damage, its one writer."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import ConfigurationError, InputError, LogCorrupt
from clonos.sources import LogWriter, log_writer as writer, read

GOLDEN = (
    b"CLNSLOG1"
     b"\x05\x00\x00\x00" + b"\x86\xa6\x10\x36" + b"\x40\xe2\x01\x00\x00\x00\x00\x00" + b"hello"
    + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x00" + b"\x40\xe2\x01\x00\x00\x00\x00\x00"
)  # fmt: skip


def payloads(path: Path, partition: int = 0) -> list[bytes]:
    return [record.payload for record in read(path, partition)]


def test_the_bytes_are_those_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer.time, "time_ns", lambda: 123_456_789)
    with LogWriter(tmp_path, 1) as log:
        assert log.append_many(0, [b"hello", b""]) == [8, 29]
    assert (tmp_path / "0.log").read_bytes() == GOLDEN
    assert zlib.crc32(b"hello") == 0x3610A686


def test_a_record_is_found_at_its_position(tmp_path: Path) -> None:
    with LogWriter(tmp_path, 2) as log:
        positions = [log.append(1, bytes([number]) * number) for number in range(5)]
        log.flush()
    assert [record.position for record in read(tmp_path, 1)] == positions
    assert payloads(tmp_path, 0) == []


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.binary(max_size=40), max_size=4), max_size=4),
    cut=st.integers(min_value=0, max_value=400),
    more=st.binary(max_size=20),
)
def test_any_torn_tail_loses_only_incomplete_records(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[bytes]], cut: int, more: bytes
) -> None:
    path = tmp_path_factory.mktemp("log")
    with LogWriter(path, 1) as log:
        for batch in batches:
            log.append_many(0, batch)
    file = path / "0.log"
    file.write_bytes(file.read_bytes()[: max(0, file.stat().st_size - cut)])
    left = payloads(path)
    written = [payload for batch in batches for payload in batch]
    assert left == written[: len(left)]
    with LogWriter(path) as log:
        log.append(0, more)
    assert payloads(path) == [*left, more]


@settings(max_examples=60, deadline=None)
@given(index=st.integers(min_value=0, max_value=200), bit=st.integers(min_value=0, max_value=7))
def test_a_flipped_bit_never_gives_other_payloads(
    tmp_path_factory: pytest.TempPathFactory, index: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("log")
    written = [b"first", b"second record", b"3"]
    with LogWriter(path, 1) as log:
        log.append_many(0, written)
    file = path / "0.log"
    data = bytearray(file.read_bytes())
    data[index % len(data)] ^= 1 << bit
    file.write_bytes(bytes(data))
    found = []
    try:
        for record in read(path, 0):
            found.append(record.payload)  # noqa: PERF401 (what came before the error counts)
    except LogCorrupt as error:
        assert str(file) in str(error)
    assert found == written[: len(found)]


def test_damage_names_file_and_offset(tmp_path: Path) -> None:
    with LogWriter(tmp_path, 1) as log:
        _, second, _ = log.append_many(0, [b"aaaa", b"bbbb", b"cccc"])
    file = tmp_path / "0.log"
    data = bytearray(file.read_bytes())
    data[second + 16] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(LogCorrupt, match=rf"0\.log at offset {second}: its checksum"):
        payloads(tmp_path)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with LogWriter(tmp_path, 1), pytest.raises(ConfigurationError, match="another writer"):
        LogWriter(tmp_path)
    LogWriter(tmp_path).close()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="number of partitions"):
        LogWriter(tmp_path / "new")
    with LogWriter(tmp_path / "log", 2) as log, pytest.raises(InputError, match=r"partitions 0\.\.1"):
        log.append(2, b"")
    with pytest.raises(ConfigurationError, match="has 2 partitions, not 3"):
        LogWriter(tmp_path / "log", 3)
    (tmp_path / "log" / "1.log").write_bytes(b"something else")
    with pytest.raises(LogCorrupt, match="not an embedded log"):
        LogWriter(tmp_path / "log")
    with pytest.raises(LogCorrupt, match="CLNSLOG1"):
        payloads(tmp_path / "log", 1)
