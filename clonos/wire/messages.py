"""What the frames between a conduit and a replica say, as typed values.

Everything here crosses a boundary: the other end may be another version, another program or an attacker. So each
message has one packer and one parser, the parser checks every field before other code sees the value, and the only
exception it raises is ProtocolError, saying what was wrong. Fields that a parser does not know are ignored, so that
a newer peer may say more. The layouts are those of docs/wire.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from clonos.errors import ProtocolError
from clonos.protocol.fence import FENCE_BYTES, Fence, Generation
from clonos.protocol.ids import LOG_BEGIN, Epoch, InstanceId, LogOffset, NodeId, Origin, OutputNumber
from clonos.protocol.messages import End as End, Follow as Follow, Promote as Promote, Tick as Tick
from clonos.protocol.recovery.causal.replacement import Failover
from clonos.wire.admin_messages import (
    AdminAnswer,
    AdminRequest,
    pack_answer,
    pack_request,
    parse_answer,
    parse_request,
)
from clonos.wire.framing import Buffer, Frame, FrameType, Packed, pack
from clonos.wire.json_fields import (
    MAX_INT,
    MAX_LONG,
    epoch_of,
    flag,
    generation_in,
    origin_of,
    parse_json,
    text,
    whole,
)

VERSION: Final = 7
MODES: Final = ("microbatch", "realtime")

_RESUME = struct.Struct("<QQ")
_BUNDLE = struct.Struct("<QII")
_U64 = struct.Struct("<Q")
_OUTPUT = struct.Struct("<QQQIII")
_BLOCK = struct.Struct("<iI")
_CHECKPOINTED = struct.Struct("<QQ")
_PROMOTE = struct.Struct(f"<{FENCE_BYTES}sQ")


@dataclass(frozen=True, slots=True)
class Hello:
    """HELLO: a conduit connects for one incarnation of one instance, and one epoch."""

    token: str = field(repr=False)
    generation: Generation
    node: NodeId
    instance: InstanceId
    epoch: Epoch
    fence: Fence
    fresh: bool
    stage_attempt: int = 0
    task_attempt: int = 0
    mode: str = "microbatch"
    standby: bool = False
    failovers: tuple[Failover, ...] = ()
    recovered: LogOffset = LOG_BEGIN
    version: int = VERSION

    @property
    def origin(self) -> Origin:
        return Origin(self.node, self.instance)

    @property
    def is_retry(self) -> bool:
        """Whether there was an attempt before."""
        return bool(self.stage_attempt or self.task_attempt)

    def to_dict(self) -> dict[str, Any]:
        failovers = [[Fence(failover.fence).text, failover.known_upto] for failover in self.failovers]
        return {**asdict(self), "fence": self.fence.text, "failovers": failovers}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Hello:
        _version(said, "HELLO")
        origin = origin_of(said, "HELLO")
        hello = cls(
            token=text(said, "token", "HELLO"),
            generation=generation_in(said, "HELLO"),
            node=origin.node,
            instance=origin.instance,
            epoch=epoch_of(said, "HELLO"),
            fence=_fence(said.get("fence"), "HELLO"),
            fresh=flag(said, "fresh", "HELLO"),
            stage_attempt=whole(said, "stage_attempt", "HELLO", 0, MAX_INT),
            task_attempt=whole(said, "task_attempt", "HELLO", 0, MAX_LONG),
            mode=text(said, "mode", "HELLO"),
            standby=flag(said, "standby", "HELLO") if "standby" in said else False,
            failovers=_failovers(said.get("failovers", [])),
            recovered=LogOffset(whole(said, "recovered", "HELLO", 0, MAX_LONG))
            if "recovered" in said
            else LOG_BEGIN,
        )
        if hello.mode not in MODES:
            raise ProtocolError(f"HELLO: mode {hello.mode!r} is none of {', '.join(MODES)}")
        if hello.fence.generation != hello.generation:
            raise ProtocolError(f"HELLO: fence {hello.fence.text} is not of generation {hello.generation}")
        return hello


@dataclass(frozen=True, slots=True)
class Admin:
    """A request to the replica server, in the place of a conduit's HELLO."""

    token: str = field(repr=False)
    request: AdminRequest


@dataclass(frozen=True, slots=True)
class Resume:
    """What the conduit holds from before: the last output row taken over, and the instance's own log."""

    emitted_output: OutputNumber
    log_start: LogOffset
    log: memoryview


@dataclass(frozen=True, slots=True)
class Welcome:
    """How much may be under way, and the offset up to which the replica has recovered the instance's log."""

    window: int
    window_bytes: int
    log_end: LogOffset = LOG_BEGIN
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Bundle:
    """BUNDLE. Its blocks may be without rows; then they have watermarks."""

    seq: int
    rows: int
    blocks: tuple[memoryview, ...]

    @classmethod
    def joined(cls, bundles: Sequence[Bundle]) -> Bundle:
        """Bundles that came one behind the other, as one with the last one's number."""
        blocks = tuple(block for each in bundles for block in each.blocks)
        return cls(bundles[-1].seq, sum(each.rows for each in bundles), blocks)


class OutputBlock(NamedTuple):
    """A block, and the instance downstream that it is for."""

    destination: int
    block: Buffer


@dataclass(frozen=True, slots=True)
class Output:
    acked_input: int
    emitted_output: OutputNumber
    log_start: LogOffset
    log: memoryview
    rows: int
    blocks: tuple[OutputBlock, ...]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    seq: int
    log_offset: LogOffset


@dataclass(frozen=True, slots=True)
class Ended:
    emitted_output: OutputNumber
    report: bytes = b""
    """What the instance has done (`wire.epoch_report`); nothing where there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    progress: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A record that ended processes is, for the first time on this host."""


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Ahead of its rows: what an effect depends on of the instance's own log."""

    log_start: LogOffset
    log: memoryview


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """The conduit has the instance's log up to here."""

    log_end: LogOffset


@dataclass(frozen=True, slots=True)
class Error:
    error: str
    message: str
    retryable: bool
    traceback: str = ""


Message: TypeAlias = (
    Hello
    | Admin
    | Resume
    | Welcome
    | Bundle
    | Tick
    | End
    | Output
    | Checkpointed
    | Ended
    | Heartbeat
    | PassedOver
    | Error
    | Follow
    | Promote
    | FlushLog
    | LogFlushed
)


def pack_hello(hello: Hello) -> Packed:
    return pack_json(FrameType.HELLO, hello.to_dict())


def pack_admin(token: str, request: AdminRequest) -> Packed:
    said = {"version": VERSION, "token": token, "admin": pack_request(request)}
    return pack_json(FrameType.HELLO, said)


def pack_admin_answer(answer: AdminAnswer) -> Packed:
    return pack_json(FrameType.WELCOME, {"version": VERSION, "admin": pack_answer(answer)})


def pack_resume(emitted_output: OutputNumber, log_start: LogOffset, log: Buffer = b"") -> Packed:
    return pack(FrameType.RESUME, _fields(_RESUME, "RESUME", emitted_output, log_start), log)


def pack_welcome(window: int, window_bytes: int, log_end: LogOffset = LOG_BEGIN) -> Packed:
    said = {"version": VERSION, "window": window, "window_bytes": window_bytes, "log_end": log_end}
    return pack_json(FrameType.WELCOME, said)


def pack_bundle(seq: int, rows: int, blocks: Sequence[Buffer]) -> Packed:
    parts: list[Buffer] = [_fields(_BUNDLE, "BUNDLE", seq, rows, len(blocks))]
    for block in blocks:
        parts += (_fields(_BLOCK, "BUNDLE", 0, memoryview(block).nbytes), block)
    return pack(FrameType.BUNDLE, *parts)


def pack_tick() -> Packed:
    return pack(FrameType.TICK)


def pack_end(seq: int) -> Packed:
    return pack(FrameType.END, _fields(_U64, "END", seq))


def pack_output(
    acked_input: int,
    emitted_output: OutputNumber,
    log_start: LogOffset,
    log: Buffer = b"",
    rows: int = 0,
    blocks: Sequence[OutputBlock] = (),
) -> Packed:
    if rows > 0 and not blocks:
        raise ProtocolError(f"OUTPUT: {rows} rows in {len(blocks)} blocks")
    size = memoryview(log).nbytes
    fields = _fields(_OUTPUT, "OUTPUT", acked_input, emitted_output, log_start, size, rows, len(blocks))
    parts: list[Buffer] = [fields, log]
    for destination, block in blocks:
        parts += (_fields(_BLOCK, "OUTPUT", destination, memoryview(block).nbytes), block)
    return pack(FrameType.OUTPUT, *parts)


def pack_checkpointed(seq: int, log_offset: LogOffset) -> Packed:
    return pack(FrameType.CHECKPOINTED, _fields(_CHECKPOINTED, "CHECKPOINTED", seq, log_offset))


def pack_ended(emitted_output: OutputNumber, report: bytes = b"") -> Packed:
    return pack(FrameType.ENDED, _fields(_U64, "ENDED", emitted_output), report)


def pack_heartbeat(progress: int) -> Packed:
    return pack(FrameType.HEARTBEAT, _fields(_U64, "HEARTBEAT", progress))


def pack_passed_over() -> Packed:
    return pack(FrameType.PASSED_OVER)


def pack_follow(log_start: LogOffset, log: Buffer) -> Packed:
    return pack(FrameType.FOLLOW, _fields(_U64, "FOLLOW", log_start), log)


def pack_promote(fence: Fence, emitted_output: OutputNumber) -> Packed:
    return pack(FrameType.PROMOTE, _fields(_PROMOTE, "PROMOTE", fence.pack(), emitted_output))


def pack_flush_log(log_start: LogOffset, log: Buffer) -> Packed:
    return pack(FrameType.FLUSH_LOG, _fields(_U64, "FLUSH_LOG", log_start), log)


def pack_log_flushed(log_end: LogOffset) -> Packed:
    return pack(FrameType.LOG_FLUSHED, _fields(_U64, "LOG_FLUSHED", log_end))


def pack_error(error: str, message: str, *, retryable: bool, traceback: str = "") -> Packed:
    said = {"error": error, "message": message, "retryable": retryable, "traceback": traceback}
    return pack_json(FrameType.ERROR, said)


def pack_exception(error: BaseException, *, traceback: str = "") -> Packed:
    """ERROR from an exception; one that is not of Clonos is final, since nothing promises that trying again helps."""
    retryable = bool(getattr(error, "retryable", False))
    return pack_error(type(error).__name__, str(error), retryable=retryable, traceback=traceback)


def pack_json(kind: FrameType, said: Mapping[str, Any]) -> Packed:
    return pack(kind, json.dumps(said, separators=(",", ":")).encode())


def _fields(layout: struct.Struct, name: str, *values: int | bytes) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise ProtocolError(f"{name}: {values} does not fit the wire: {error}") from None


def parse(frame: Frame) -> Message:
    """The message of a frame; ProtocolError where it does not hold what its type promises."""
    return _PARSERS[frame.type](frame.payload)


def _parse_hello(payload: memoryview) -> Hello | Admin:
    said = parse_json(payload, "HELLO")
    if "admin" not in said:
        return Hello.from_dict(said)
    _version(said, "HELLO")
    return Admin(text(said, "token", "HELLO"), parse_request(_admin(said, "HELLO")))


def parse_admin_answer(frame: Frame) -> AdminAnswer:
    """The answer to `pack_admin`; ProtocolError where the frame holds none."""
    said = parse_json(frame.payload, frame.type.name)
    _version(said, frame.type.name)
    return parse_answer(_admin(said, frame.type.name))


def _admin(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    admin = said.get("admin")
    if not isinstance(admin, dict):
        raise ProtocolError(f"{name}: admin is not an object")
    return admin


def _parse_resume(payload: memoryview) -> Resume:
    emitted_output, log_start = _split(_RESUME, payload, "RESUME")
    return Resume(OutputNumber(emitted_output), LogOffset(log_start), payload[_RESUME.size :])


def _parse_welcome(payload: memoryview) -> Welcome:
    said = parse_json(payload, "WELCOME")
    _version(said, "WELCOME")
    return Welcome(
        window=whole(said, "window", "WELCOME", 1, MAX_INT),
        window_bytes=whole(said, "window_bytes", "WELCOME", 1, MAX_LONG),
        log_end=LogOffset(whole(said, "log_end", "WELCOME", 0, MAX_LONG)),
    )


def _parse_bundle(payload: memoryview) -> Bundle:
    seq, rows, count = _split(_BUNDLE, payload, "BUNDLE")
    if seq == 0 or count == 0:
        raise ProtocolError(f"BUNDLE: seq {seq} with {rows} rows in {count} blocks")
    blocks = _parse_blocks(payload[_BUNDLE.size :], count, "BUNDLE")
    return Bundle(seq, rows, tuple(block for _, block in blocks))


def _parse_tick(payload: memoryview) -> Tick:
    _check_empty(payload, "TICK")
    return Tick()


def _parse_passed_over(payload: memoryview) -> PassedOver:
    _check_empty(payload, "PASSED_OVER")
    return PassedOver()


def _check_empty(payload: memoryview, name: str) -> None:
    if payload.nbytes:
        raise ProtocolError(f"{name}: {payload.nbytes} bytes where none belong")


def _parse_output(payload: memoryview) -> Output:
    acked_input, emitted_output, log_start, size, rows, count = _split(_OUTPUT, payload, "OUTPUT")
    rest = payload[_OUTPUT.size :]
    if size > rest.nbytes:
        raise ProtocolError(f"OUTPUT: {size} log bytes announced, {rest.nbytes} there")
    if rows > 0 and count == 0:
        raise ProtocolError(f"OUTPUT: {rows} rows in {count} blocks")
    blocks = tuple(OutputBlock(*found) for found in _parse_blocks(rest[size:], count, "OUTPUT"))
    return Output(acked_input, OutputNumber(emitted_output), LogOffset(log_start), rest[:size], rows, blocks)


def _parse_blocks(rest: memoryview, count: int, name: str) -> list[tuple[int, memoryview]]:
    blocks: list[tuple[int, memoryview]] = []
    while rest.nbytes:
        destination, size = _split(_BLOCK, rest, name)
        rest = rest[_BLOCK.size :]
        if size == 0 or size > rest.nbytes:
            raise ProtocolError(f"{name}: a block of {size} bytes announced, {rest.nbytes} there")
        blocks.append((destination, rest[:size]))
        rest = rest[size:]
    if len(blocks) != count:
        raise ProtocolError(f"{name}: {count} blocks announced, {len(blocks)} there")
    return blocks


def _parse_checkpointed(payload: memoryview) -> Checkpointed:
    return Checkpointed(*_whole_payload(_CHECKPOINTED, payload, "CHECKPOINTED"))


def _parse_end(payload: memoryview) -> End:
    return End(*_whole_payload(_U64, payload, "END"))


def _parse_ended(payload: memoryview) -> Ended:
    (emitted_output,) = _whole_payload(_U64, payload[: _U64.size], "ENDED")
    return Ended(OutputNumber(emitted_output), bytes(payload[_U64.size :]))


def _parse_heartbeat(payload: memoryview) -> Heartbeat:
    return Heartbeat(*_whole_payload(_U64, payload, "HEARTBEAT"))


def _parse_follow(payload: memoryview) -> Follow:
    log_start, log = _increment(payload, "FOLLOW")
    return Follow(log_start, bytes(log))


def _parse_flush_log(payload: memoryview) -> FlushLog:
    return FlushLog(*_increment(payload, "FLUSH_LOG"))


def _parse_log_flushed(payload: memoryview) -> LogFlushed:
    return LogFlushed(*_whole_payload(_U64, payload, "LOG_FLUSHED"))


def _increment(payload: memoryview, name: str) -> tuple[LogOffset, memoryview]:
    """A piece of the instance's own log, and where it begins."""
    (log_start,) = _split(_U64, payload, name)
    if payload.nbytes == _U64.size:
        raise ProtocolError(f"{name}: no log bytes")
    return LogOffset(log_start), payload[_U64.size :]


def _parse_promote(payload: memoryview) -> Promote:
    fence, emitted_output = _whole_payload(_PROMOTE, payload, "PROMOTE")
    return Promote(Fence.unpack(fence), OutputNumber(emitted_output))


def _parse_error(payload: memoryview) -> Error:
    said = parse_json(payload, "ERROR")
    traceback = said.get("traceback")
    return Error(
        error=text(said, "error", "ERROR"),
        message=text(said, "message", "ERROR"),
        retryable=flag(said, "retryable", "ERROR"),
        traceback=traceback if isinstance(traceback, str) else "",
    )


_PARSERS = {
    FrameType.HELLO: _parse_hello,
    FrameType.RESUME: _parse_resume,
    FrameType.WELCOME: _parse_welcome,
    FrameType.BUNDLE: _parse_bundle,
    FrameType.TICK: _parse_tick,
    FrameType.END: _parse_end,
    FrameType.OUTPUT: _parse_output,
    FrameType.CHECKPOINTED: _parse_checkpointed,
    FrameType.ENDED: _parse_ended,
    FrameType.HEARTBEAT: _parse_heartbeat,
    FrameType.ERROR: _parse_error,
    FrameType.FOLLOW: _parse_follow,
    FrameType.PROMOTE: _parse_promote,
    FrameType.FLUSH_LOG: _parse_flush_log,
    FrameType.LOG_FLUSHED: _parse_log_flushed,
    FrameType.PASSED_OVER: _parse_passed_over,
}


def _split(layout: struct.Struct, payload: memoryview, name: str) -> tuple[int, ...]:
    if payload.nbytes < layout.size:
        raise ProtocolError(f"{name}: {payload.nbytes} bytes, at least {layout.size} belong there")
    return layout.unpack_from(payload)


def _whole_payload(layout: struct.Struct, payload: memoryview, name: str) -> tuple[Any, ...]:
    if payload.nbytes != layout.size:
        raise ProtocolError(f"{name}: {payload.nbytes} bytes, exactly {layout.size} belong there")
    return layout.unpack(payload)


def _version(said: Mapping[str, Any], name: str) -> None:
    if said.get("version") != VERSION:
        raise ProtocolError(
            f"{name}: wire version {said.get('version')!r}, this end speaks {VERSION}",
            hint="Use the same release of the jar and of the Python package",
        )


def _failovers(said: Any) -> tuple[Failover, ...]:
    if not isinstance(said, list):
        raise ProtocolError(f"HELLO: failovers {said!r} is not a list")
    failovers: list[Failover] = []
    for failover in said:
        if not isinstance(failover, list) or len(failover) != 2:
            raise ProtocolError(f"HELLO: failover {failover!r} is not a fence and a log offset")
        offset = whole({"offset": failover[1]}, "offset", "HELLO", 0, MAX_LONG)
        failovers.append(Failover(_fence(failover[0], "HELLO"), LogOffset(offset)))
    return tuple(failovers)


def _fence(said: Any, name: str) -> Fence:
    try:
        return Fence.parse(said)
    except ProtocolError as error:
        raise ProtocolError(f"{name}: {error.message}") from None
