"""What a host answers about other instances' pasts, read from logs whose owners are alive, dead or damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from delta_segments import segments_for
from standby_conduit import SPEC

from clonos.errors import LogCorrupt
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.longest_prefix import HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer
from clonos.storage.log_store import LogStore
from clonos.wire.determinant_client import fetch
from clonos_standby.cluster.launcher import ReplicaServer
from clonos_standby.server.holdings import Holdings

ORIGIN = Origin(2, 5)
LOG = b"the past of an instance, in order" * 3


def delta(start: int, stop: int, *, origin: Origin = ORIGIN, elided: bool = False) -> bytes:
    return encode_delta([encode_entry(origin, start, stop - start, 1, None if elided else LOG[start:stop])])


def holdings(data: Path, **options: Any) -> Holdings:
    return Holdings(data / "logs", "here", LogStore.read_only, **options)


def ask(held: Holdings, start: int = 0) -> HolderReply:
    return held.lookup(ORIGIN, start)


@pytest.fixture
def stores() -> Iterator[dict[str, LogStore]]:
    opened: dict[str, LogStore] = {}
    yield opened
    for store in opened.values():
        store.close()


def test_what_an_instance_with_standbys_wrote_itself_is_told_apart(
    tmp_path: Path, stores: dict[str, LogStore]
) -> None:
    mine = stores["mine"] = LogStore(str(tmp_path / "logs" / "2" / "5"))
    mine.begin(Writer(7, 0))
    received = delta(0, 3, origin=Origin(1, 0))
    mine.append([received], (0, LOG[:20]))
    near = stores["near"] = LogStore(str(tmp_path / "logs" / "3" / "0"))
    near.append([delta(0, 10)], None)
    own = OwnLog([(0, LOG[:20])], (Writer(7, 0),), (received,))
    assert ask(holdings(tmp_path)) == HolderReply("here", [(0, LOG[:10])], 10, (), (own,))


def test_every_appended_piece_is_seen_at_once(tmp_path: Path, stores: dict[str, LogStore]) -> None:
    held = holdings(tmp_path)
    assert ask(held) == HolderReply("here")
    near = stores["near"] = LogStore(str(tmp_path / "logs" / "3" / "0"))
    far = stores["far"] = LogStore(str(tmp_path / "logs" / "4" / "1"))
    assert ask(held).segments == []
    near.append([delta(0, 10)], (0, b"its own"))
    assert ask(held) == HolderReply("here", [(0, LOG[:10])], 10)
    far.append([delta(5, 30), delta(40, 50)], None)
    assert ask(held) == HolderReply("here", [(0, LOG[:30]), (40, LOG[40:50])], 50)
    near.append([delta(30, 40), delta(50, 90, elided=True)], None)
    assert ask(held) == HolderReply("here", [(0, LOG[:50])], 90)
    assert ask(held, 45).segments == [(40, LOG[40:50])] and ask(held, 50) == HolderReply("here", [], 90)
    for end in range(51, 60):
        near.append([delta(end - 1, end)], None)
        assert ask(held).segments == [(0, LOG[:end])]


def test_the_own_log_is_handed_back_but_its_store_does_not_depend_on_it(
    tmp_path: Path, stores: dict[str, LogStore]
) -> None:
    own = stores["own"] = LogStore(str(tmp_path / "logs" / "2" / "5"))
    own.append([], (0, LOG[:20]))
    own.append([], (20, LOG[20:25]))
    assert ask(holdings(tmp_path)) == HolderReply("here", [(0, LOG[:25])], 0)


def test_it_says_what_segments_for_says(tmp_path: Path, stores: dict[str, LogStore]) -> None:
    raw = encode_delta(
        [
            encode_entry(ORIGIN, 3, 4, 1, LOG[3:7]),
            encode_entry(Origin(2, 4), 0, 2, 1, b"xx"),
            encode_entry(ORIGIN, 9, 90, 2, None),
        ]
    )
    store = stores["one"] = LogStore(str(tmp_path / "logs" / "3" / "0"))
    store.append([raw], None)
    reply = ask(holdings(tmp_path))
    assert (reply.segments, reply.required) == segments_for(raw, *ORIGIN)


def test_contradicting_holders_are_both_quoted(tmp_path: Path, stores: dict[str, LogStore]) -> None:
    for instance, text in enumerate((b"one past", b"two past")):
        store = stores[str(instance)] = LogStore(str(tmp_path / "logs" / "3" / str(instance)))
        store.append([encode_delta([encode_entry(ORIGIN, 0, 8, 1, text)])], None)
    assert sorted(ask(holdings(tmp_path)).segments) == [(0, b"one past"), (0, b"two past")]


def test_a_damaged_delta_is_named_and_the_rest_answered(tmp_path: Path, stores: dict[str, LogStore]) -> None:
    store = stores["one"] = LogStore(str(tmp_path / "logs" / "3" / "0"))
    bad = bytearray(delta(10, 20))
    bad[-1] ^= 1
    store.append([delta(0, 10), bytes(bad), delta(20, 30)], None)
    reply = ask(holdings(tmp_path))
    assert reply.segments == [(0, LOG[:10]), (20, LOG[20:30])]
    assert len(reply.damaged) == 1 and "3/0" in reply.damaged[0].what


def test_a_directory_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    def broken(path: str) -> Any:
        raise LogCorrupt(f"no log in {path}")

    (tmp_path / "logs" / "3" / "0").mkdir(parents=True)
    (tmp_path / "logs" / "other").mkdir()
    reply = Holdings(tmp_path / "logs", "here", broken).lookup(ORIGIN, 0)
    assert len(reply.damaged) == 1 and "no log in" in reply.damaged[0].what


def test_an_unchanged_directory_is_read_once_and_kept_within_bounds(
    tmp_path: Path, stores: dict[str, LogStore]
) -> None:
    opened: list[str] = []

    def counting(path: str) -> Any:
        opened.append(path)
        return LogStore.read_only(path)

    for instance in range(3):
        store = stores[str(instance)] = LogStore(str(tmp_path / "logs" / "3" / str(instance)))
        store.append([delta(0, 40)], None)
    held = Holdings(tmp_path / "logs", "here", counting)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda instance: held.lookup(Origin(2, instance % 6), 0), range(24)))
    assert sum(bool(reply.segments) for reply in replies) == 4
    assert len(opened) == 3
    stores["1"].append([delta(40, 50)], None)
    assert ask(held).segments == [(0, LOG[:50])]
    assert len(opened) == 4
    small = Holdings(tmp_path / "logs", "here", counting, cache_bytes=100)
    for _ in range(2):
        assert ask(small).segments == [(0, LOG[:50])]
        assert sum(cached.index.size for cached in small._cache.values()) <= 100


OWNER = """
    import sys
    from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
    from clonos.protocol.ids import Origin
    from clonos.storage.log_store import LogStore
    store = LogStore(sys.argv[1])
    for line in sys.stdin:
        start, text = line.split()
        store.append([encode_delta([encode_entry(Origin(2, 5), int(start), len(text), 1, text.encode())])], None)
        print("kept", flush=True)
"""


def test_over_grpc_from_an_owner_that_lives_and_then_is_killed(tmp_path: Path) -> None:
    with ReplicaServer(SPEC, tmp_path, entry="standby_replica:main") as server:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        owner = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path / "logs" / "3" / "0")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

        def append(line: str) -> None:
            assert owner.stdin is not None and owner.stdout is not None
            owner.stdin.write(line + "\n")
            owner.stdin.flush()
            assert owner.stdout.readline() == "kept\n"

        def fetched() -> tuple[list[tuple[int, bytes]], int]:
            (reply,) = fetch([server.grpc_address or ""], SPEC["token"], 2, 5, query="tests").replies.values()
            assert reply.damaged == () and "replica server on" in reply.holder
            return reply.segments, reply.required

        with owner:
            append("0 abc")
            assert fetched() == ([(0, b"abc")], 3)
            append("3 def")
            assert fetched() == ([(0, b"abcdef")], 6)
            os.kill(owner.pid, signal.SIGKILL)
        assert fetched() == ([(0, b"abcdef")], 6)
