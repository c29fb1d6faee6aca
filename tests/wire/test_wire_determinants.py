"""The determinant service: who may ask, what is answered, and who could not be asked."""

from __future__ import annotations

import importlib.util
import itertools
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, strategies as st

from clonos.errors import LogCorrupt, ProtocolError, StorageUnavailable, Unauthenticated
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.holding import Damage, HolderReply
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer
from clonos.wire._gen import determinants_pb2, determinants_pb2_grpc
from clonos.wire.determinant_client import fetch
from clonos.wire.determinant_service import DeterminantServer, merged, page

TOKEN = "t0ken"
LOG = bytes(range(256)) * 40
PIECE = Damage("one piece", Origin(3, 1), acts=False)


def lookup(origin: Origin, start: int) -> HolderReply:
    if origin.node == 13:
        raise StorageUnavailable("the disk is away")
    if origin.node == 14:
        raise LogCorrupt("nothing of it can be read")
    if origin.node == 15:
        raise KeyError("a mistake")
    return HolderReply(f"holder of {origin}", [(start, LOG[start:])], len(LOG) + 7, (PIECE,))


@pytest.fixture(scope="module")
def server() -> Iterator[DeterminantServer]:
    with DeterminantServer(lookup, TOKEN, query="q") as running:
        yield running


def test_the_log_comes_back(server: DeterminantServer) -> None:
    fetched = fetch([server.address], TOKEN, 2, 3, 100, query="q")
    assert fetched.unreachable == []
    assert list(fetched.replies.values()) == [
        HolderReply("holder of 2/3", [(100, LOG[100:])], len(LOG) + 7, (PIECE,))
    ]


def test_own_logs_come_back_in_pages_too() -> None:
    own = (
        OwnLog([(0, LOG)], (Writer(5, 0), Writer(6, 70), Writer(7, 80, copy=True)), (b"delta",)),
        OwnLog([(50, LOG[50:90])], (), ()),
    )

    marks = (HistoryMark(0, 40, 2**32 - 1), HistoryMark(40, 2**63 - 1, 0))

    def both(origin: Origin, start: int) -> HolderReply:
        return HolderReply("h", [(10, LOG[10:3000])], 3000, (), own, marks)

    with DeterminantServer(both, TOKEN, page_bytes=1000) as running:
        (reply,) = fetch([running.address], TOKEN, 2, 3).replies.values()
    assert merged(reply.segments) == [(10, LOG[10:3000])]
    assert reply.marks == marks
    assert [merged(log.segments) for log in reply.own] == [[(0, LOG)], [(50, LOG[50:90])]]
    assert [(log.incarnations, log.received) for log in reply.own] == [
        ((Writer(5, 0), Writer(6, 70), Writer(7, 80, copy=True)), (b"delta",)),
        ((), ()),
    ]


def test_without_the_token_nothing_is_answered(server: DeterminantServer) -> None:
    for token in ("", "wrong", TOKEN[:-1]):
        with pytest.raises(Unauthenticated, match="token"):
            fetch([server.address], token, 2, 3)
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = determinants_pb2_grpc.DeterminantsStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as failure:
            stub.Fetch(determinants_pb2.FetchRequest(version=1), timeout=120)
        assert failure.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_another_version_or_query_is_refused(server: DeterminantServer) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = determinants_pb2_grpc.DeterminantsStub(channel)  # type: ignore[no-untyped-call]
        for version in (0, 1, 3):
            with pytest.raises(grpc.RpcError) as failure:
                stub.Fetch(
                    determinants_pb2.FetchRequest(version=version),
                    timeout=120,
                    metadata=[("authorization", f"Bearer {TOKEN}")],
                )
            assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"version {version}" in failure.value.details()
    with pytest.raises(ProtocolError, match="'another' is not served here"):
        fetch([server.address], TOKEN, 2, 3, query="another")


def test_an_oversized_request_is_refused(server: DeterminantServer) -> None:
    fetched = fetch([server.address], TOKEN, 2, 3, query="x" * 100_000)
    assert fetched.replies == {} and "RESOURCE_EXHAUSTED" in fetched.unreachable[0].reason


@pytest.mark.parametrize(
    ("node", "words"),
    [(13, "UNAVAILABLE: StorageUnavailable: the disk"), (14, "INTERNAL: LogCorrupt"), (15, "UNKNOWN")],
)
def test_a_holder_that_fails_is_reported_as_not_asked(
    server: DeterminantServer, node: int, words: str
) -> None:
    fetched = fetch([server.address], TOKEN, node, 0)
    assert fetched.replies == {} and words in fetched.unreachable[0].reason


def test_all_are_asked_at_once_and_the_absent_are_named() -> None:
    together = threading.Barrier(4)

    def meet(origin: Origin, start: int) -> HolderReply:
        together.wait(120)
        return lookup(origin, start)

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # accepts, and never says anything
        absent = "127.0.0.1:1"
        dumb = f"127.0.0.1:{silent.getsockname()[1]}"
        servers = [DeterminantServer(meet, TOKEN) for _ in range(4)]
        try:
            addresses = [absent, *(one.address for one in servers), dumb, servers[0].address]
            fetched = fetch(addresses, TOKEN, 2, 3, timeout=3.0)
        finally:
            for one in servers:
                one.stop(0)
    assert len(fetched.replies) == 4
    assert [one.address for one in fetched.unreachable] == [absent, dumb]
    assert absent in str(fetched.unreachable[0])


def test_a_large_log_comes_in_pages() -> None:
    with DeterminantServer(lookup, TOKEN, page_bytes=1000) as server:
        fetched = fetch([server.address], TOKEN, 2, 3, 5)
    (reply,) = fetched.replies.values()
    assert len(reply.segments) == 11 and reply.required == len(LOG) + 7 and reply.damaged == (PIECE,)
    assert b"".join(data for _, data in reply.segments) == LOG[5:]


def test_a_log_beyond_the_default_message_size_fits() -> None:
    large = bytes(9 << 20)
    with DeterminantServer(lambda *_: HolderReply("h", [(0, large)]), TOKEN) as server:
        fetched = fetch([server.address], TOKEN, 1, 0, timeout=120)
    assert [reply.segments for reply in fetched.replies.values()] == [[(0, large)]]


def test_a_taken_port_is_waited_for_and_then_given_up(server: DeterminantServer) -> None:
    port = int(server.address.rpartition(":")[2])
    with DeterminantServer(lookup, TOKEN, port=port) as other:
        assert other.address != server.address
        assert fetch([other.address], TOKEN, 1, 0).replies


pieces = st.lists(
    st.integers(0, 50).flatmap(lambda at: st.integers(1, 20).map(lambda size: (at, LOG[at : at + size]))),
    max_size=12,
)


@given(pieces, st.integers(0, 60))
def test_merged_pieces_say_what_the_pieces_said(found: list[tuple[int, bytes]], start: int) -> None:
    joined = merged(found)
    said = {at + n: byte for at, data in found for n, byte in enumerate(data)}
    assert {at + n: byte for at, data in joined for n, byte in enumerate(data)} == said
    assert all(end < after for (end, after) in _gaps(joined)), "without contradictions nothing touches"
    parts, asked = [], start
    while True:
        got, onward = page(joined, asked, 7)
        parts += got
        if not onward:
            break
        assert onward > asked
        asked = onward
    assert {at + n: b for at, data in parts for n, b in enumerate(data)} == {
        at: byte for at, byte in said.items() if at >= start
    }


def _gaps(joined: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
    return [(at + len(data), after) for (at, data), (after, _) in itertools.pairwise(joined)]


@given(st.lists(st.tuples(st.integers(0, 10), st.binary(min_size=1, max_size=6)), max_size=6))
def test_contradictions_are_kept_for_the_asker(found: list[tuple[int, bytes]]) -> None:
    def claims(some: list[tuple[int, bytes]]) -> set[tuple[int, int]]:
        return {(at + n, byte) for at, data in some for n, byte in enumerate(data)}

    assert claims(merged(found)) == claims(found)
    paged, asked = [], 0
    while True:
        got, onward = page(merged(found), asked, 3)
        paged += got
        if not onward:
            break
        asked = onward
    assert claims(paged) == claims(found)


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_the_generated_code_is_current(root: Path) -> None:
    command = [sys.executable, str(root / "scripts" / "generate_proto.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
