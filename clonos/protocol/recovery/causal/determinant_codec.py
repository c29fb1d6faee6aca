"""The log format: steps to bytes and back.

A log is a sequence of *chunks*; a chunk is the unit that is appended, piggybacked and checked:

    u8 0xC1 (format version 1) | varint length | u32 CRC-32 of the entries, little-endian | entries

A step usually is one chunk. A step that performs an effect is cut before it, because what the effect depends on must
be stable first. Offsets into a log always fall between chunks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import chain

from clonos.errors import LogCorrupt
from clonos.protocol.ids import Epoch, LogOffset
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Effect, Kind, Outcome, Run, Step
from clonos.protocol.varint import append_varint, read_varint, unzigzag, zigzag

VERSION = 0xC1
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def seal(entries: bytes | bytearray) -> bytes:
    """One chunk that holds `entries`."""
    head = bytearray((VERSION,))
    append_varint(head, len(entries))
    head += _U32.pack(zlib.crc32(entries))
    return bytes(head + entries)


def append_boundary(
    out: bytearray, epoch: Epoch, seed: int, program: str = "", *, records_watermarks: bool = False
) -> None:
    out.append(Kind.BOUNDARY)
    append_varint(out, epoch)
    out.append(Kind.SEED)
    out += _U64.pack(seed)
    if program:
        out.append(Kind.PROGRAM)
        _append_text(out, program)
    if records_watermarks:
        _append_watermark(out, 0)


def append_checkpoint(out: bytearray) -> None:
    out.append(Kind.CHECKPOINT)


def append_order(out: bytearray, runs: Sequence[Run]) -> None:
    out.append(Kind.ORDER)
    append_varint(out, len(runs))
    try:
        flat = bytes(chain.from_iterable(runs))
    except ValueError:  # a number above 255
        flat = b"\xff"
    if flat.isascii():  # every number below 128: its varint is itself
        out += flat
        return
    for channel, count in runs:
        append_varint(out, channel)
        append_varint(out, count)


def append_clock(out: bytearray, reading: int) -> None:
    out.append(Kind.CLOCK)
    append_varint(out, zigzag(reading))


def append_instants(out: bytearray, readings: Sequence[int]) -> None:
    out.append(Kind.INSTANT)
    append_varint(out, len(readings))
    before = 0
    for reading in readings:
        append_varint(out, zigzag(reading - before))
        before = reading


def append_timer(out: bytearray, fired_at: int, watermark: int | None = None) -> None:
    out.append(Kind.TIMER)
    append_varint(out, zigzag(fired_at))
    if watermark is not None:
        _append_watermark(out, watermark)


def append_call(out: bytearray, outcome: Outcome) -> None:
    out.append(Kind.CALL)
    _append_text(out, outcome.name)
    _append_outcome(out, outcome)


def append_answer(out: bytearray, answer: Answer) -> None:
    out.append(Kind.ANSWER)
    append_varint(out, answer.number)
    _append_text(out, answer.outcome.name)
    _append_outcome(out, answer.outcome)


def append_effect(out: bytearray, key: str) -> None:
    out.append(Kind.EFFECT)
    _append_text(out, key)


def append_effect_done(out: bytearray, outcome: Outcome) -> None:
    out.append(Kind.EFFECT_DONE)
    _append_outcome(out, outcome)


def append_skip(out: bytearray, ran: int) -> None:
    out.append(Kind.SKIP)
    append_varint(out, ran)


def append_sent(out: bytearray, outputs: int, digest: int) -> None:
    _append_end(out, Kind.SENT, outputs, digest)


def append_end_again(out: bytearray, step: Step) -> None:
    """The end of a recorded step as it stands there, whichever version has written it."""
    _append_end(out, step.end, step.outputs, step.digest)


def _append_end(out: bytearray, kind: Kind, outputs: int, digest: int) -> None:
    out.append(kind)
    append_varint(out, outputs)
    out += _U32.pack(digest)


def _append_watermark(out: bytearray, watermark: int) -> None:
    out.append(Kind.WATERMARK)
    append_varint(out, zigzag(watermark))


def _append_text(out: bytearray, text: str) -> None:
    raw = text.encode()
    append_varint(out, len(raw))
    out += raw


def _append_outcome(out: bytearray, outcome: Outcome) -> None:
    out.append(1 if outcome.ok else 0)
    append_varint(out, len(outcome.payload))
    out += outcome.payload
    if outcome.took is not None:
        out.append(Kind.TOOK)
        append_varint(out, outcome.took)


class _Reader:
    """A cursor over the entries of one chunk."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        value, self.at = read_varint(self.data, self.at)
        return value

    def take(self, count: int) -> bytes:
        raw = self.data[self.at : self.at + count]
        if len(raw) != count:
            raise LogCorrupt("a log entry is cut off")
        self.at += count
        return raw

    def skip_if(self, kind: Kind) -> bool:
        found = self.at < len(self.data) and self.data[self.at] == kind
        self.at += found
        return found

    def text(self) -> str:
        try:
            return self.take(self.varint()).decode()
        except UnicodeDecodeError as error:
            raise LogCorrupt("a name in a log entry is not UTF-8") from error

    def outcome(self, name: str) -> Outcome:
        ok = self.take(1) == b"\x01"
        payload = self.take(self.varint())
        return Outcome(name, ok, payload, self.varint() if self.skip_if(Kind.TOOK) else None)


def chunk_at(log: bytes | memoryview, at: int) -> tuple[bytes, int]:
    """The entries of the chunk at index `at`, and the index after it. Raises LogCorrupt."""
    if log[at] != VERSION:
        raise LogCorrupt(f"log format version {log[at]:#04x} at {at}; this library reads {VERSION:#04x}")
    length, body = read_varint(log, at + 1)
    end = body + 4 + length
    if end > len(log):
        raise LogCorrupt(f"the log chunk at {at} is cut off: {end - len(log)} bytes are missing")
    entries = bytes(log[body + 4 : end])
    if zlib.crc32(entries) != _U32.unpack(log[body : body + 4])[0]:
        raise LogCorrupt(f"the log chunk at {at} fails its checksum")
    return entries, end


def whole_chunks(log: bytes) -> bytes:
    """Without a chunk at the end that is cut off. A store may end inside one: its log was written anew from where two
    histories first differ, and the page with what came there is damaged. Raises LogCorrupt."""
    at = 0
    while at < len(log):
        try:
            length, body = read_varint(log, at + 1)
        except LogCorrupt:
            break
        if body + 4 + length > len(log):
            break
        _, at = chunk_at(log, at)
    return log[:at]


def decode_steps(log: bytes, base: LogOffset) -> list[Step]:
    """The steps in `log`, whose first byte has log offset `base` and begins a chunk.

    The last step is not `complete` where the log ends in the middle of a step.
    """
    steps: list[Step] = []
    at = 0
    while at < len(log):
        entries, end = chunk_at(log, at)
        reader, offset = _Reader(entries), LogOffset(base + at)
        while reader.at < len(entries):
            _read_entry(reader, steps, offset)
        if steps:
            steps[-1].stop = LogOffset(base + end)
        at = end
    return steps


def _read_entry(reader: _Reader, steps: list[Step], offset: LogOffset) -> None:
    code = reader.take(1)[0]
    try:
        kind = Kind(code)
    except ValueError as error:
        raise LogCorrupt(f"unknown log entry type {code} at offset {offset}") from error
    if kind in (Kind.BOUNDARY, Kind.ORDER, Kind.TIMER, Kind.CHECKPOINT):
        if steps and not steps[-1].complete:
            raise LogCorrupt(f"a step begins at offset {offset} inside another one")
        steps.append(_read_opening(reader, kind, offset))
        return
    if not steps or steps[-1].complete:
        raise LogCorrupt(f"a {kind.name} entry at offset {offset} is outside any step")
    _read_outcome(reader, kind, steps[-1], offset)


def _read_opening(reader: _Reader, kind: Kind, offset: LogOffset) -> Step:
    step = Step(kind, offset)
    if kind is Kind.BOUNDARY:
        step.epoch = Epoch(reader.varint())
        if reader.take(1)[0] != Kind.SEED:
            raise LogCorrupt(f"the boundary at offset {offset} has no seed")
        step.seed = _U64.unpack(reader.take(8))[0]
        if reader.skip_if(Kind.PROGRAM):
            step.program = reader.text()
        if reader.skip_if(Kind.WATERMARK):
            step.records_watermarks = reader.varint() == 0
        step.complete = True
    elif kind is Kind.CHECKPOINT:
        step.complete = True
    elif kind is Kind.ORDER:
        step.runs = [(reader.varint(), reader.varint()) for _ in range(reader.varint())]
    else:
        step.fired_at = unzigzag(reader.varint())
        if reader.skip_if(Kind.WATERMARK):
            step.watermark = unzigzag(reader.varint())
    return step


def _read_outcome(reader: _Reader, kind: Kind, step: Step, offset: LogOffset) -> None:
    if kind is Kind.CLOCK:
        step.clocks.append(unzigzag(reader.varint()))
    elif kind is Kind.INSTANT:
        reading = 0
        for _ in range(reader.varint()):
            reading += unzigzag(reader.varint())
            step.instants.append(reading)
    elif kind is Kind.CALL:
        step.calls.append(reader.outcome(reader.text()))
    elif kind is Kind.ANSWER:
        number = CallNumber(reader.varint())
        step.answers.append(Answer(number, reader.outcome(reader.text())))
    elif kind is Kind.EFFECT:
        step.effects.append(Effect(reader.text()))
    elif kind is Kind.EFFECT_DONE:
        if not step.effects or step.effects[-1].outcome is not None:
            raise LogCorrupt(f"the outcome of an effect at offset {offset} has no effect before it")
        step.effects[-1].outcome = reader.outcome(step.effects[-1].key)
    elif kind is Kind.SKIP:
        ran = reader.varint()
        if (
            step.kind is not Kind.ORDER
            or step.skip is not None
            or ran >= sum(count for _, count in step.runs)
        ):
            raise LogCorrupt(f"a SKIP entry at offset {offset} names no record of its step")
        step.skip = ran
    elif kind in (Kind.SENT, Kind.END):
        step.end = kind
        step.outputs = reader.varint()
        step.digest = _U32.unpack(reader.take(4))[0]
        step.complete = True
    else:
        raise LogCorrupt(f"a {kind.name} entry at offset {offset} is out of place")
