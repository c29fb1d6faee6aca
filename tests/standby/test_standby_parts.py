"""The parts of the replica server by themselves: fences, causes of death, the control line, the loop."""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import struct
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from clonos.errors import ConfigurationError, ProtocolError, StorageUnavailable
from clonos.operators.rows import make_row
from clonos.protocol.engine.epoch_counts import Counted
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.protocol.roles.death import LET_GO, REPORTED, Death, KillReason, classify_death
from clonos.storage.manifest import Manifest
from clonos.values import state_codec as values
from clonos.wire.framing import FrameType, send_frames
from clonos.wire.messages import End, LogFlushed, Tick, pack_end, pack_log_flushed, pack_tick, parse
from clonos_standby.replica import snapshot_metadata as metadata
from clonos_standby.replica.connection import ConduitGone, Connection
from clonos_standby.server.control import ControlChannel, ControlClosed, pair
from clonos_standby.server.death import TAIL_BYTES, DeathLog, Output, append_bounded, ending_of
from clonos_standby.server.event_loop import Loop
from clonos_standby.server.fences import FenceTable
from clonos_standby.server.processes import look_at, oom_kills, thread_count

# -- fences ------------------------------------------------------------------------------------------------------


def test_a_fence_only_rises_and_survives(tmp_path: Path) -> None:
    first, second, other = Origin(1, 0), Origin(1, 1), Origin(2, 0)
    table = FenceTable(tmp_path / "fences")
    raise_to = table.fences.raise_to
    assert raise_to(first, 5) and not raise_to(first, 5) and not raise_to(first, 4)
    assert raise_to(second, 1) and raise_to(other, 0) and not raise_to(other, 0)
    again = FenceTable(tmp_path / "fences")  # the first one was not closed: its process may have been killed
    assert again.fences.fence(first) == 5
    assert not again.fences.raise_to(first, 5) and again.fences.raise_to(first, 6)
    for one in (table, again):
        one.close()


def test_a_standby_may_show_its_primarys_fence(tmp_path: Path) -> None:
    table = FenceTable(tmp_path / "fences")
    assert table.fences.raise_to(Origin(2, 0), 10)
    assert table.fences.admit_standby(Origin(2, 0), 10)
    assert not table.fences.admit_standby(Origin(2, 0), 9)
    assert table.fences.admit_standby(Origin(2, 0), 12)
    assert not table.fences.raise_to(Origin(2, 0), 12), "a primary shows a newer one"
    table.fences.raise_generation(1)
    assert not table.fences.admit_standby(Origin(2, 0), 13)
    table.close()


def test_a_raised_generation_survives(tmp_path: Path) -> None:
    table = FenceTable(tmp_path / "fences")
    table.fences.raise_generation(3)
    table.fences.raise_generation(2)
    table.close()
    again = FenceTable(tmp_path / "fences")
    assert again.fences.generation == 3
    assert not again.fences.raise_to(Origin(1, 0), Fence.of(2)) and again.fences.raise_to(
        Origin(1, 0), Fence.of(3)
    )
    again.close()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 1000)), max_size=30))
def test_fences_are_the_highest_seen(raises: list[tuple[int, int, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "fences"
        highest: dict[tuple[int, int], int] = {}
        for node, instance, fence in raises:
            table = FenceTable(path)
            assert table.fences.raise_to(Origin(node, instance), fence) == (
                fence > highest.get((node, instance), -1)
            )
            highest[node, instance] = max(fence, highest.get((node, instance), -1))
            table.close()


def narrow_records(*records: tuple[int, int, int]) -> bytes:
    """As files had them when fences had 64 bits."""
    packed = [struct.pack("<IIQ", *record) for record in records]
    return b"".join(record + struct.pack("<I", zlib.crc32(record)) for record in packed)


def test_a_file_of_64_bit_fences_is_read_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "fences"
    path.write_bytes(narrow_records((0, 0, 3), (1, 0, 3 << 48 | 7 << 16 | 2), (1, 1, 5)) + b"torn")
    table = FenceTable(path)
    assert table.fences.generation == 3
    assert table.fences.fence(Origin(1, 0)) == Fence.of(3, 7, 2)
    assert not table.fences.raise_to(Origin(1, 0), Fence.of(3, 7, 2))
    assert table.fences.raise_to(Origin(1, 0), Fence.of(3, 7, 3))
    assert path.read_bytes().startswith(b"CLFENCE2")
    again = FenceTable(path)
    assert (again.fences.generation, again.fences.fence(Origin(1, 0))) == (3, Fence.of(3, 7, 3))


def test_a_file_of_64_bit_fences_is_not_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for the new one: records of both kinds in one file could not be told apart."""
    path = tmp_path / "fences"
    old = narrow_records((1, 0, 3 << 48))
    path.write_bytes(old)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(StorageUnavailable, match="cannot be written"):
            FenceTable(path)
    assert path.read_bytes() == old
    assert FenceTable(path).fences.fence(Origin(1, 0)) == Fence.of(3)


def test_a_fence_cut_short_was_never_shown_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fences"
    table = FenceTable(path)
    table.fences.raise_to(Origin(1, 0), 5)
    table.fences.raise_to(Origin(1, 0), 9)
    table.close()
    raw = path.read_bytes()
    path.write_bytes(raw[:-3])
    table = FenceTable(path)
    assert table.fences.fence(Origin(1, 0)) == 5
    table.close()
    path.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    with pytest.raises(ConfigurationError, match="corrupt at byte 0"):
        FenceTable(path)


# -- deaths ------------------------------------------------------------------------------------------------------


def ending(
    status: int,
    killed_for: str | None = None,
    oom: int = 0,
    node: int | None = 3,
    *,
    standby: bool = False,
) -> Death:
    reaped = ending_of(
        None if node is None else Origin(node, 4),
        99,
        status,
        killed_for=None if killed_for is None else KillReason(killed_for),
        started=time.monotonic(),
        max_rss_kib=2048,
        oom_kills=oom,
        stderr="last words",
        standby=standby,
    )
    return classify_death(reaped)


@pytest.mark.parametrize(
    ("status", "killed_for", "oom", "kind", "words"),
    [
        (0, None, 0, "exit", "exit code 0"),
        (3 << 8, None, 0, "exit", "exit code 3"),
        (signal.SIGSEGV, None, 0, "signal", "SIGSEGV"),
        (signal.SIGABRT | 0x80, None, 0, "signal", "SIGABRT"),
        (signal.SIGKILL, None, 0, "signal", "not sent by its server; its memory peaked at 2 MiB"),
        (signal.SIGKILL, None, 1, "oom", "want of memory"),
        (signal.SIGKILL, "hang", 0, "hang", "conduit had given up"),
        (signal.SIGKILL, "deaf", 0, "hang", "did not read its control line"),
        (signal.SIGKILL, "replaced", 1, "replaced", "another attempt"),
        (signal.SIGSEGV, "hang", 0, "signal", "SIGSEGV"),
        (3 << 8, "replaced", 0, "exit", "exit code 3"),
    ],
)
def test_causes_of_death(status: int, killed_for: str | None, oom: int, kind: str, words: str) -> None:
    death = ending(status, killed_for, oom)
    assert death.kind == kind and words in death.message and death.stderr == "last words"
    assert death.message.startswith("the replica of operator 3, instance 4 (process 99)")
    assert death.expected == (kind in ("replaced", "fenced"))


@pytest.mark.parametrize(
    ("code", "standby", "expected"), [(LET_GO, True, True), (LET_GO, False, False), (REPORTED, True, False)]
)
def test_only_a_standby_may_be_let_go_of(code: int, standby: bool, expected: bool) -> None:
    death = ending(code << 8, standby=standby)
    assert death.expected == expected == ("let go of" in death.message)


def test_the_death_of_a_spare_is_called_so() -> None:
    assert ending(0, node=None).message.startswith("a spare (process 99)")


def test_deaths_are_kept_to_a_bound(tmp_path: Path) -> None:
    log = DeathLog(tmp_path / "deaths.jsonl", keep=3)
    for _ in range(5):
        log.add(ending(0))
    assert log.total == 5 and len(log.recent) == 3
    assert len((tmp_path / "deaths.jsonl").read_text().splitlines()) == 5


def test_a_bounded_file_keeps_its_last_part(tmp_path: Path) -> None:
    path = tmp_path / "out.err"
    for number in range(100):
        append_bounded(path, f"{number}\n".encode() * 10, limit=500)
    assert path.stat().st_size <= 500 and path.with_name("out.err.1").stat().st_size <= 600
    assert not append_bounded(tmp_path / "missing" / "out.err", b"x"), "a missing place raises nothing"


def test_the_tail_of_an_output_is_bounded(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    output = Output(reader)
    assert not output.read() and not output.eof
    for number in range(60):
        os.write(writer, f"{number} {'x' * 1000}\n".encode())
        output.read()
    os.write(writer, b"\xff last")
    os.close(writer)
    output.drain()
    output.close()
    assert output.eof and output.tail().endswith(" last") and len(output.tail()) <= TAIL_BYTES


def test_what_the_system_says_of_a_process() -> None:
    assert thread_count() >= 1 and oom_kills() >= 0
    assert not look_at(os.getpid()).exiting and not look_at(os.getpid()).stopped
    assert not look_at(2**22 + 1).exiting


# -- the control line --------------------------------------------------------------------------------------------


def test_messages_and_descriptors_arrive_together_and_in_order() -> None:
    ours, theirs = pair()
    files = [os.memfd_create(f"file-{number}") for number in range(3)]
    for number, fd in enumerate(files):
        os.write(fd, str(number).encode())
    ours.send({"n": 0})
    ours.send({"n": 1}, files[:1])
    ours.send({"n": 2, "big": b"x" * 100_000})
    ours.send({"n": 3}, files[1:])
    for fd in files:
        os.close(fd)
    found = []
    while len(found) < 4:
        ours.flush()
        control = theirs.receive(timeout=10)
        assert control is not None
        found.append(control)
    assert [control.message["n"] for control in found] == [0, 1, 2, 3]
    assert [len(control.fds) for control in found] == [0, 1, 0, 2]
    for number, fd in enumerate([*found[1].fds, *found[3].fds]):
        assert os.pread(fd, 10, 0) == str(number).encode() and not os.get_inheritable(fd)
        os.close(fd)
    assert theirs.poll() == [] and theirs.receive(timeout=0) is None
    ours.close()
    with pytest.raises(ControlClosed):
        theirs.receive()
    with pytest.raises(ControlClosed):
        theirs.send({"n": 4})
    theirs.close()


def test_what_came_before_the_end_is_still_delivered() -> None:
    ours, theirs = pair()
    ours.send({"at_end": 3})
    ours.close()
    assert [control.message for control in theirs.poll()] == [{"at_end": 3}]
    with pytest.raises(ControlClosed):
        theirs.poll()
    theirs.close()


def test_a_line_that_is_not_read_is_bounded_and_never_blocks() -> None:
    ours, theirs = pair()
    with open(os.devnull) as file, pytest.raises(ControlClosed, match="does not read"):
        for _ in range(1000):
            ours.send({"x": b"x" * 100_000}, [file.fileno()])
    assert ours.wants_write
    before = len(os.listdir("/proc/self/fd"))
    ours.close()
    theirs.close()
    assert len(os.listdir("/proc/self/fd")) < before - 10, "queued descriptors are closed"


@given(st.binary(max_size=60))
def test_garbage_on_the_line_raises_only_protocol_errors(garbage: bytes) -> None:
    left, right = socket.socketpair()
    channel = ControlChannel(right)
    with left:
        left.sendall(garbage)
    try:
        for control in channel.poll():
            assert isinstance(control.message, dict)
    except ProtocolError:
        pass
    channel.close()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (struct.pack("<IB", 1, 0) + b"\xc1", "cannot be read"),
        (struct.pack("<IB", 1, 0) + b"\x05", "a map is expected"),
        (struct.pack("<IB", 1, 1) + b"\x80", "without its descriptors"),
        (struct.pack("<IB", 1 << 30, 0), "announces"),
    ],
)
def test_a_bad_control_message_is_named(raw: bytes, words: str) -> None:
    left, right = socket.socketpair()
    channel = ControlChannel(right)
    left.sendall(raw)
    with pytest.raises(ProtocolError, match=words):
        channel.poll()
    left.close()
    channel.close()


# -- the loop ----------------------------------------------------------------------------------------------------


def test_a_frame_that_is_waited_for_overtakes_others() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    send_frames(theirs, [pack_tick(), pack_end(7), pack_log_flushed(5), pack_tick()])
    assert parse(connection.next_of(FrameType.LOG_FLUSHED)) == LogFlushed(5)
    assert [type(parse(connection.next())) for _ in range(3)] == [Tick, End, Tick]
    send_frames(theirs, [pack_end(8)])
    theirs.close()
    with pytest.raises(ConduitGone):
        connection.next_of(FrameType.LOG_FLUSHED)
    assert parse(connection.next()) == End(8)
    connection.close()


def test_timers_come_in_order_and_cancelled_ones_do_not() -> None:
    loop, seen = Loop(), []
    loop.later(0.02, lambda: (seen.append("late"), loop.stop()))
    loop.later(0.0, lambda: seen.append("early"))
    loop.later(0.01, lambda: seen.append("never")).cancel()
    loop.run()
    loop.close()
    assert seen == ["early", "late"]


def test_idle_work_gives_way_to_events() -> None:
    loop, seen = Loop(), []
    left, right = socket.socketpair()

    def idle() -> bool:
        seen.append("idle")
        if len(seen) == 2:
            left.send(b"x")
        return len(seen) < 10

    def ready(_events: int) -> None:
        right.recv(1)
        seen.append("event")
        loop.later(0.01, loop.stop)

    loop.watch(right.fileno(), ready)
    loop.run(idle)
    loop.close()
    left.close()
    right.close()
    assert seen[:3] == ["idle", "idle", "event"]


def test_a_callback_may_drop_another_that_is_ready() -> None:
    loop, seen = Loop(), []
    pairs = [socket.socketpair() for _ in range(2)]

    def drop_both(_events: int) -> None:
        seen.append(1)
        for _, right in pairs:
            loop.forget(right.fileno())
        loop.stop()

    for left, right in pairs:
        loop.watch(right.fileno(), drop_both)
        left.send(b"x")
    loop.run()
    loop.close()
    assert seen == [1]
    for both in pairs:
        for end in both:
            end.close()


# -- snapshot metadata -------------------------------------------------------------------------------------------


def test_metadata_of_a_snapshot_says_all_of_the_instance() -> None:
    snapshot = InstanceSnapshot(
        epoch=7,
        covered={1: 20},
        emitted=30,
        log_offset=100,
        epoch_log_offset=97,
        boundary=7,
        random_state=(3, (1, 2, 3), None),
        watermark=None,
        pending=[(1, 21, (5, "a"))],
        sent={0: 30},
        received={Origin(1, 0): 40},
        log_digest=5,
        awaited_input={2: 9},
        log=b"abc",
        counted=Counted(consumed=6, sent=(3, 4), dropped=1, updated=5, removed=2),
    )
    raw = metadata.encode(snapshot, acked_input=4)
    assert metadata.decode(raw, lambda channel: tuple) == snapshot
    cleaned = replace(snapshot, serves_upto=Epoch(0))
    bounded = metadata.encode(cleaned)
    assert metadata.decode(bounded, lambda channel: tuple) == cleaned
    versions = [values.decode(each)["version"] for each in (raw, bounded)]
    assert versions == [3, 6], "an earlier library, which would not see the bound, does not read it"
    found = metadata.candidate(Manifest(7, 2, True, 1 << 16, raw, ()))
    assert (found.log_offset, found.emitted, found.acked_input, found.received) == (
        100,
        30,
        4,
        {Origin(1, 0): 40},
    )
    assert found.own_log.segments == [(97, b"abc")] and found.own_log.incarnations == (Writer(1 << 16, 97),)


def test_rows_that_wait_come_back_with_the_rows_inside_them() -> None:
    inside = make_row(("a", "b"), (1, [make_row(("at",), (dt.datetime(2024, 1, 1, fold=1),))]))
    keyed = {make_row(("k",), (2,)): make_row(("x",), (None,)), "plain": {"deep": [inside, None]}}
    row = make_row(("s", "m", "n", "empty"), (inside, keyed, None, make_row((), ())))
    waiting = InstanceSnapshot(1, {}, 0, 9, 9, 1, (3, (), None), None, pending=[(65, 3, row)])
    waiting.kept_of_policy = b"\xc1 and what follows"
    read = metadata.decode(metadata.encode(waiting), lambda channel: type(row))
    assert read.kept_of_policy == waiting.kept_of_policy and read.reached == {65: 3}
    waiting.channel_state = [metadata.kept_records(Bundle([65, 66], [4, 1], [row, row]))]
    waiting.channel_reached = {65: 4, 66: 1}
    raw = metadata.encode(waiting)
    read = metadata.decode(raw, lambda channel: type(row))
    assert read.pending == [(65, 3, row), (65, 4, row), (66, 1, row)] and not read.channel_state
    assert metadata.point("name", raw).reached == read.reached == {65: 4, 66: 1}
    assert values.decode(raw)["version"] == 4, "a reader that passed the state over would lose rows"
    channel, position, back = read.pending[0]
    assert (channel, position, back) == (65, 3, row) and back.s.b[0].at.fold == 1
    assert back.m[make_row(("k",), (2,))].x is None and back.m["plain"]["deep"][0].asDict() == inside.asDict()
    older = {
        **values.decode(metadata.encode(replace(waiting, channel_state=[]))),
        "version": 2,
        "pending": [[65, 3, [1, [2], {"k": 3}]]],
    }
    names = type(make_row(("p", "q", "r"), (1, 2, 3)))
    assert metadata.decode(values.encode(older), lambda channel: names).pending == [
        (65, 3, (1, [2], {"k": 3}))
    ]


def test_metadata_without_a_log_and_counts_is_read() -> None:
    """As they were written before they could have them."""
    said = values.decode(metadata.encode(InstanceSnapshot(1, {}, 0, 9, 9, 1, (3, (), None), None)))
    del said["log"], said["counted"]
    read = metadata.decode(values.encode(said), lambda channel: tuple)
    assert read.log == b"" and read.counted == Counted()
