"""Replicas for tests of the conduit: they speak the wire, echo rows, and can be told to fail.

An instance gives one output row per input row, numbered through all epochs, and writes eight bytes of "causal log" per
bundle. All its destinations are told the highest watermark of a bundle that has one. Everything is deterministic, so a
replacement that is fed the same bundles repeats the same rows, and whatever the conduit loses, repeats or reorders
shows in `violations` or in the rows that arrive downstream.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from clonos.protocol.ids import Epoch
from clonos.wire.block import Block, pack_block, parse_block, watermark_block

HELLO, RESUME, WELCOME, BUNDLE, TICK, END, OUTPUT, CHECKPOINTED, ENDED, HEARTBEAT, ERROR = range(1, 12)


def frame(kind: int, payload: bytes = b"") -> bytes:
    checksum = zlib.crc32(payload, zlib.crc32(bytes([kind])))
    return struct.pack("<IBI", 5 + len(payload), kind, checksum) + payload


def pieces(payload: bytes) -> Iterator[bytes]:
    """The blocks of a BUNDLE."""
    at = 0
    while at < len(payload):
        _, size = struct.unpack_from("<iI", payload, at)
        yield payload[at + 8 : at + 8 + size]
        at += 8 + size


class Closed(Exception):
    """The conduit went away, or the test closed the connection."""


class Wire:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.held = bytearray()

    def _bytes(self, count: int) -> bytes:
        while len(self.held) < count:
            try:
                data = self.connection.recv(1 << 20)
            except OSError as error:
                raise Closed(str(error)) from error
            if not data:
                raise Closed("end of stream")
            self.held += data
        taken = bytes(self.held[:count])
        del self.held[:count]
        return taken

    def receive(self) -> tuple[int, bytes]:
        length, kind, checksum = struct.unpack("<IBI", self._bytes(9))
        payload = self._bytes(length - 5)
        assert zlib.crc32(payload, zlib.crc32(bytes([kind]))) == checksum
        return kind, payload

    def send(self, kind: int, payload: bytes = b"") -> None:
        try:
            self.connection.sendall(frame(kind, payload))
        except OSError as error:
            raise Closed(str(error)) from error


@dataclass
class Snapshot:
    seq: int = 0
    output: int = 0
    log: int = 0


@dataclass
class Instance:
    """What survives the loss of a replica: the snapshots, and what it saw, for the test to look at."""

    ends: dict[int, Snapshot] = field(default_factory=dict)
    within: dict[int, Snapshot] = field(default_factory=dict)
    fences: list[int] = field(default_factory=list)
    hellos: list[dict[str, object]] = field(default_factory=list)
    bundles: int = 0
    ticks: int = 0
    rows: int = 0
    watermarks: list[tuple[int, int]] = field(default_factory=list)  # sender, and what it said, as it came
    bundle_rows: list[int] = field(default_factory=list)
    checksums: dict[tuple[int, int], int] = field(default_factory=dict)
    collected: set[tuple[int, int]] = field(default_factory=set)


class Replicas:
    """Serves every instance of some nodes on one Unix socket, or on a TCP port.

    `script(node, instance, attempt, bundles)` is asked before a bundle is answered and may return "die" (close without
    answering), "die_after" (answer first), "hang", "error" or "retryable", "garbage" (a frame with a wrong checksum)
    or "misfit" (output that is no block).
    """

    def __init__(
        self,
        path: str,
        users: dict[int, pa.Schema],
        *,
        parallelism: int = 2,
        sinks: frozenset[int] = frozenset(),
        script: Callable[[int, int, int, int], str | None] = lambda *_: None,
        checkpoint_every: int = 0,
        window: int = 8,
        delay: float = 0.0,
        port: int = 0,
    ) -> None:
        self.path, self.users, self.sinks, self.script = path, users, sinks, script
        self.parallelism, self.checkpoint_every, self.window, self.delay = (
            parallelism,
            checkpoint_every,
            window,
            delay,
        )
        self.instances: dict[tuple[int, int], Instance] = {}
        self.collected: dict[int, list[dict[str, object]]] = {node: [] for node in sinks}
        self.violations: list[str] = []
        self.reports: list[dict[str, object]] = []
        self.lock = threading.Lock()
        self.connections: list[socket.socket] = []
        if port:
            self.listener = socket.create_server(("127.0.0.1", port))
        else:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(path)
            self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._converse(Wire(connection))
        except Closed:
            pass
        except Exception as error:
            self.violations.append(repr(error))
            raise
        finally:
            connection.close()

    def check(self, condition: bool, message: str) -> None:
        if not condition:
            self.violations.append(message)

    def _converse(self, wire: Wire) -> None:
        kind, payload = wire.receive()
        self.check(kind == HELLO, f"first frame is {kind}")
        hello = json.loads(payload)
        if "admin" in hello:
            self.reports.append(hello["admin"])
            return
        node, number, epoch = hello["node"], hello["instance"], hello["epoch"]
        with self.lock:
            instance = self.instances.setdefault((node, number), Instance())
            self.check(all(hello["fence"] > fence for fence in instance.fences), "the fence was not raised")
            instance.fences.append(hello["fence"])
            instance.hellos.append(hello)
            attempt = len(instance.fences)
        kind, payload = wire.receive()
        emitted_output, log_start = struct.unpack_from("<QQ", payload)
        kept = payload[16:]
        before = instance.ends.get(epoch - 1, Snapshot())
        if hello["fresh"]:
            instance.within.pop(epoch, None)
            instance.checksums.clear()
            instance.collected.clear()
            self.check(emitted_output == 0 and not kept, "a fresh RESUME carries something")
        start = instance.within.get(epoch, Snapshot(0, before.output, before.log))
        # Of the last snapshot the conduit may not have heard when the replica died.
        self.check(not kept or log_start <= start.log, f"RESUME log at {log_start}, snapshot at {start.log}")
        state = Snapshot(start.seq, start.output, start.log)
        wire.send(
            WELCOME, json.dumps({"version": 7, "window": self.window, "window_bytes": 64 << 20}).encode()
        )
        while True:
            kind, payload = wire.receive()
            if kind == TICK:
                instance.ticks += 1
                wire.send(HEARTBEAT, struct.pack("<Q", instance.rows))
            elif kind == END:
                (last,) = struct.unpack("<Q", payload)
                self.check(last == state.seq, f"END after {last}, acknowledged {state.seq}")
                instance.ends[epoch] = Snapshot(0, state.output, state.log)
                wire.send(ENDED, struct.pack("<Q", state.output))
                return
            elif kind == BUNDLE:
                self._bundle(wire, instance, (node, number, epoch, attempt), state, payload, emitted_output)
            else:
                self.check(False, f"frame of type {kind}")

    def _bundle(
        self,
        wire: Wire,
        instance: Instance,
        who: tuple[int, int, int, int],
        state: Snapshot,
        payload: bytes,
        emitted_output: int,
    ) -> None:
        node, number, epoch, attempt = who
        seq, rows, count = struct.unpack_from("<QII", payload)
        if seq <= state.seq:
            return
        self.check(seq == state.seq + 1, f"bundle {seq} after {state.seq}")
        blocks = [parse_block(memoryview(raw)) for raw in pieces(payload[16:])]
        self.check(len(blocks) == count, "blocks do not fit")
        self.check(all(block.epoch == epoch for block in blocks), "a block of another epoch")
        batch = self._rows(node, blocks)
        batch.validate(full=True)
        self.check(batch.num_rows == rows == sum(block.count for block in blocks), "rows do not fit")
        checksum = zlib.crc32(payload)
        self.check(instance.checksums.setdefault((epoch, seq), checksum) == checksum, f"bundle {seq} changed")
        instance.bundles += 1
        what = self.script(node, number, attempt, instance.bundles)
        if what == "die":
            raise Closed("scripted")
        if what == "garbage":
            wire.connection.sendall(frame(HEARTBEAT, bytes(8))[:-1] + b"X")
        if what == "misfit":
            head = struct.pack("<QQQIII", seq, state.output + rows, state.log, 0, rows, 1)
            wire.send(OUTPUT, head + struct.pack("<iI", 0, 100) + bytes(100))
        if what == "hang":
            time.sleep(30)
        if what in ("error", "retryable"):
            error = {"error": "UserFunctionError", "message": "scripted", "retryable": what == "retryable"}
            wire.send(ERROR, json.dumps({**error, "traceback": "Traceback: line 1"}).encode())
            raise Closed("scripted")
        if self.delay:
            time.sleep(self.delay)
        instance.watermarks += [
            (block.sender, block.watermark) for block in blocks if block.watermark is not None
        ]
        instance.rows += rows
        instance.bundle_rows.append(rows)
        first = state.output + 1
        state.output += 0 if node in self.sinks else rows
        entry = struct.pack("<Q", seq)
        log_start, state.log = state.log, state.log + len(entry)
        state.seq = seq
        if node in self.sinks:
            if (epoch, seq) not in instance.collected:
                instance.collected.add((epoch, seq))
                self._collect(node, blocks, batch)
            wire.send(OUTPUT, struct.pack("<QQQIII", seq, state.output, log_start, len(entry), 0, 0) + entry)
        else:
            seen = min(rows, max(0, emitted_output - first + 1))
            watermark = max(
                (block.watermark for block in blocks if block.watermark is not None), default=None
            )
            out = self._echo((number << 6) | node, epoch, batch.slice(seen), first + seen, watermark)
            head = struct.pack("<QQQIII", seq, state.output, log_start, len(entry), rows - seen, len(out))
            wire.send(OUTPUT, head + entry + b"".join(out))
        if what == "die_after":
            raise Closed("scripted")
        if self.checkpoint_every and seq % self.checkpoint_every == 0:
            instance.within[epoch] = Snapshot(state.seq, state.output, state.log)
            wire.send(CHECKPOINTED, struct.pack("<QQ", seq, state.log))

    def _rows(self, node: int, blocks: list[Block]) -> pa.RecordBatch:
        user = self.users[node]
        found = [pa.ipc.read_record_batch(pa.py_buffer(block.rows), user) for block in blocks if block.count]
        return pa.concat_batches(found) if found else pa.RecordBatch.from_pylist([], user)

    def _echo(
        self, sender: int, epoch: int, batch: pa.RecordBatch, first: int, watermark: int | None
    ) -> list[bytes]:
        """The rows again, numbered from `first`, as a block for each destination; a watermark for each of them."""
        made = []
        for destination in range(self.parallelism):
            rows = [row for row in range(batch.num_rows) if (first + row) % self.parallelism == destination]
            if rows:
                message = memoryview(batch.take(pa.array(rows)).serialize())
                numbers = [first + row for row in rows]
                block = Block(Epoch(epoch), sender, numbers, b"d", message, watermark)
            elif watermark is not None:
                block = watermark_block(Epoch(epoch), sender, watermark)
            else:
                continue
            packed = pack_block(block)
            made.append(struct.pack("<iI", destination, len(packed)) + packed)
        return made

    def _collect(self, node: int, blocks: list[Block], batch: pa.RecordBatch) -> None:
        """The rows, with the channel and the number of each."""
        origins = [(block.sender, position) for block in blocks for position in block.numbers]
        with self.lock:
            self.collected[node] += [
                {**row, "_clonos_channel": channel, "_clonos_position": position}
                for row, (channel, position) in zip(batch.to_pylist(), origins, strict=True)
            ]
