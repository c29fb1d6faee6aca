"""Bytes of the core: varints, determinants, deltas. Golden files pin the formats; fuzzing damages them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import LogCorrupt
from clonos.protocol.ids import LOCAL_MAX, NODE_MAX, Origin, channel_id, channel_origin
from clonos.protocol.recovery.causal import delta as deltas, determinant_codec as codec
from clonos.protocol.recovery.causal.delta import DeltaEntry
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Effect, Kind, Outcome, Step
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.varint import append_varint, read_varint, unzigzag, zigzag

GOLDEN = Path(__file__).parent.parent / "golden"
quick = settings(max_examples=60, deadline=None)

naturals = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
integers = st.one_of(st.integers(-300, 300), st.integers(-(2**62), 2**62))
outcomes = st.builds(
    Outcome, st.text(max_size=8), st.booleans(), st.binary(max_size=20), st.none() | st.integers(0, 10**12)
)


# ------------------------------------------------------------------- varints


@quick
@given(st.lists(st.integers(0, 2**70 - 1), max_size=20))
def test_varints_read_back(values: list[int]) -> None:
    out = bytearray()
    for value in values:
        append_varint(out, value)
    at = 0
    for value in values:
        got, at = read_varint(bytes(out), at)
        assert got == value
    assert at == len(out)


@quick
@given(st.integers(0, 2**70 - 1), st.integers(0, 9))
def test_varint_cut_off_is_corrupt(value: int, keep: int) -> None:
    out = bytearray()
    append_varint(out, value)
    cut = bytes(out[: min(keep, len(out) - 1)])
    with pytest.raises(LogCorrupt):
        read_varint(cut, 0)


def test_varint_is_bounded() -> None:
    with pytest.raises(LogCorrupt):
        read_varint(b"\xff" * 11, 0)


@given(integers)
def test_zigzag(value: int) -> None:
    assert zigzag(value) >= 0
    assert unzigzag(zigzag(value)) == value
    assert zigzag(value) <= 2 * abs(value)


@quick
@given(st.integers(1, NODE_MAX), st.integers(0, LOCAL_MAX))
def test_channels_name_their_origin(node: int, local: int) -> None:
    channel = channel_id(node, local)
    assert 0 < channel < 2**63
    assert channel_origin(channel) == Origin(node, local)


@pytest.mark.parametrize(("node", "local"), [(0, 0), (64, 0), (1, -1), (1, LOCAL_MAX + 1)])
def test_channel_out_of_range(node: int, local: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        channel_id(node, local)


# -------------------------------------------------------------- determinants


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[bytes], list[Step]]:
    """Chunks of a log, and the steps that they hold."""
    chunks: list[bytes] = []
    steps: list[Step] = []
    at = 0
    for _ in range(draw(st.integers(0, 6))):
        step = Step(draw(st.sampled_from((Kind.BOUNDARY, Kind.ORDER, Kind.TIMER))), at, complete=True)
        entries = bytearray()
        if step.kind is Kind.BOUNDARY:
            step.epoch, step.seed = draw(naturals), draw(st.integers(0, 2**64 - 1))
            step.records_watermarks = draw(st.booleans())
            codec.append_boundary(entries, step.epoch, step.seed, records_watermarks=step.records_watermarks)
        else:
            if step.kind is Kind.ORDER:
                step.runs = draw(st.lists(st.tuples(naturals, naturals), min_size=1, max_size=5))
                codec.append_order(entries, step.runs)
            else:
                step.fired_at, step.watermark = draw(integers), draw(st.none() | integers)
                codec.append_timer(entries, step.fired_at, step.watermark)
            chunks += draw(st.just([]))
            for chunk in _fill(draw, step, entries):
                chunks.append(chunk)
                at += len(chunk)
            if step.kind is Kind.ORDER and (total := sum(count for _, count in step.runs)):
                step.skip = draw(st.none() | st.integers(0, total - 1))
                if step.skip is not None:
                    codec.append_skip(entries, step.skip)
            step.outputs, step.digest = draw(naturals), draw(st.integers(0, 2**32 - 1))
            step.end = draw(st.sampled_from((Kind.SENT, Kind.END)))
            codec.append_end_again(entries, step)
        chunks.append(codec.seal(entries))
        at += len(chunks[-1])
        step.stop = at
        steps.append(step)
    return chunks, steps


def _fill(draw: st.DrawFn, step: Step, entries: bytearray) -> list[bytes]:
    early: list[bytes] = []
    for what in draw(
        st.lists(st.sampled_from(("clock", "instants", "call", "answer", "effect")), max_size=5)
    ):
        if what == "clock":
            step.clocks.append(draw(integers))
            codec.append_clock(entries, step.clocks[-1])
        elif what == "instants":
            readings = draw(st.lists(integers, max_size=4))
            step.instants.extend(readings)
            codec.append_instants(entries, readings)
        elif what == "call":
            step.calls.append(draw(outcomes))
            codec.append_call(entries, step.calls[-1])
        elif what == "answer":
            step.answers.append(Answer(CallNumber(draw(naturals)), draw(outcomes)))
            codec.append_answer(entries, step.answers[-1])
        else:
            outcome = draw(outcomes)
            step.effects.append(Effect(outcome.name, outcome))
            codec.append_effect(entries, outcome.name)
            early.append(codec.seal(entries))
            entries.clear()
            codec.append_effect_done(entries, outcome)
    return early


@quick
@given(logs(), st.integers(0, 2**40))
def test_steps_read_back(log: tuple[list[bytes], list[Step]], base: int) -> None:
    chunks, steps = log
    for step in steps:
        step.start += base
        step.stop += base
    assert codec.decode_steps(b"".join(chunks), base) == steps


@quick
@given(logs(), st.data())
def test_prefix_of_chunks_is_meaningful(log: tuple[list[bytes], list[Step]], data: st.DataObject) -> None:
    chunks, steps = log
    keep = data.draw(st.integers(0, len(chunks)))
    read = codec.decode_steps(b"".join(chunks[:keep]), 0)
    whole = [step for step in read if step.complete]
    assert whole == steps[: len(whole)]
    assert len(read) - len(whole) in (0, 1)


@quick
@given(logs(), st.data())
def test_damaged_log_is_refused_and_never_misread(
    log: tuple[list[bytes], list[Step]], data: st.DataObject
) -> None:
    chunks, _ = log
    raw = bytearray(b"".join(chunks))
    if not raw:
        return
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
        boundaries = {sum(map(len, chunks[:n])) for n in range(len(chunks) + 1)}
        if len(raw) in boundaries:
            return
    else:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LogCorrupt):
        codec.decode_steps(bytes(raw), 0)


@quick
@given(st.binary(max_size=60))
def test_entries_of_garbage_raise_only_log_corrupt(entries: bytes) -> None:
    """Even where the garbage has been sealed."""
    with contextlib.suppress(LogCorrupt):
        codec.decode_steps(codec.seal(entries), 0)


@pytest.mark.parametrize(
    "build",
    [
        lambda out: codec.append_clock(out, 1),
        lambda out: codec.append_effect_done(out, Outcome("", True, b"")),
        lambda out: codec.append_sent(out, 0, 0),
        lambda out: end_of_old(out, 0, 0),
        lambda out: (codec.append_order(out, [(1, 1)]), codec.append_order(out, [(1, 1)])),
        lambda out: (codec.append_boundary(out, 1, 1), codec.append_clock(out, 1)),
        lambda out: (
            codec.append_order(out, [(1, 1)]),
            codec.append_effect_done(out, Outcome("", True, b"")),
        ),
        lambda out: (codec.append_order(out, [(1, 1)]), codec.append_skip(out, 1)),
        lambda out: (codec.append_order(out, [(1, 2)]), codec.append_skip(out, 0), codec.append_skip(out, 1)),
        lambda out: (codec.append_timer(out, 1), codec.append_skip(out, 0)),
        lambda out: codec.append_skip(out, 0),
        lambda out: out.append(99),
        lambda out: out.append(Kind.SEED),
        lambda out: out.extend((Kind.BOUNDARY, 1, Kind.CLOCK)),
    ],
)
def test_entry_out_of_place_is_corrupt(build: object) -> None:
    out = bytearray()
    build(out)  # type: ignore[operator]
    with pytest.raises(LogCorrupt):
        codec.decode_steps(codec.seal(out), 0)


def end_of_old(out: bytearray, outputs: int, digest: int) -> None:
    """As older versions ended a step."""
    codec.append_end_again(out, Step(Kind.ORDER, 0, end=Kind.END, outputs=outputs, digest=digest))


def golden_log(end: Callable[[bytearray, int, int], None] = end_of_old) -> dict[str, str]:
    """One chunk for every kind of entry."""

    def chunk(*entries: object) -> str:
        out = bytearray()
        for append, *args in entries:  # type: ignore[misc]
            append(out, *args)
        return codec.seal(out).hex()

    order = (codec.append_order, [(1, 3), (65, 1), (200, 1000)])
    ended = (end, 7, 0xDEADBEEF)
    return {
        "boundary and seed": chunk((codec.append_boundary, 300, 0x0123456789ABCDEF)),
        "order": chunk((codec.append_order, [(1, 3), (65, 1)]), ended),
        "order, wide": chunk(order, ended),
        "clock": chunk(order, (codec.append_clock, 1_700_000_000_000_000), ended),
        "clock before 1970": chunk(order, (codec.append_clock, -5), ended),
        "instants": chunk(
            order, (codec.append_instants, [1_700_000_000_000_000, 1_700_000_000_000_007, 3]), ended
        ),
        "call": chunk(order, (codec.append_call, Outcome("weather", True, b"\x01\x02")), ended),
        "call that raised": chunk(order, (codec.append_call, Outcome("wétter", False, b"")), ended),
        "timer": chunk((codec.append_timer, 1_700_000_000_000_000), ended),
        "effect": chunk(order, (codec.append_effect, "pay-1")),
        "skip": chunk((codec.append_order, [(65, 1)]), (codec.append_skip, 0), (end, 0, 0)),
        "skip after some": chunk(order, (codec.append_skip, 1003), ended),
        "effect done": chunk((codec.append_effect_done, Outcome("pay-1", True, b"ok")), ended),
    }


def golden_watermarks() -> dict[str, str]:
    """What steps say of event time."""
    boundary, before, moves = bytearray(), bytearray(), bytearray()
    codec.append_boundary(boundary, 300, 7, "2", records_watermarks=True)
    codec.append_timer(before, 1_700_000_000_000_000, -5)
    codec.append_timer(moves, 1_700_000_000_000_000, 1_699_999_990_000_000)
    for step in (before, moves):
        codec.append_sent(step, 0, 0)
    chunks = {"boundary": boundary, "watermark before 1970": before, "watermark": moves}
    return {name: codec.seal(chunk).hex() for name, chunk in chunks.items()}


def golden_answers() -> dict[str, str]:
    """Of calls that were under way at the same time."""
    entries = bytearray()
    codec.append_order(entries, [(65, 2)])
    for number, outcome in ((1, Outcome("weather", True, b"\x01\x02")), (300, Outcome("wétter", False, b""))):
        codec.append_answer(entries, Answer(CallNumber(number), outcome))
    codec.append_sent(entries, 2, 0xDEADBEEF)
    return {"answers": codec.seal(entries).hex()}


def golden_durations() -> dict[str, str]:
    """Of what was measured."""
    entries = bytearray()
    codec.append_order(entries, [(65, 2)])
    codec.append_call(entries, Outcome("weather", True, b"\x01\x02", 0))
    codec.append_answer(entries, Answer(CallNumber(1), Outcome("wétter", False, b"", 12_345)))
    codec.append_effect(entries, "pay-1")
    codec.append_effect_done(entries, Outcome("pay-1", True, b"ok", 3_600_000_000))
    codec.append_sent(entries, 2, 0xDEADBEEF)
    return {"durations": codec.seal(entries).hex()}


def golden_deltas() -> dict[str, str]:
    return {name: deltas.encode_delta(encode_all(entries)).hex() for name, entries in GOLDEN_ENTRIES.items()}


GOLDEN_ENTRIES = {
    "empty": [],
    "one piece": [DeltaEntry(Origin(2, 0), 0, 3, 1, b"abc")],
    "far away": [DeltaEntry(Origin(63, 1000), 2**40, 2, 5, b"xy")],
    "elided": [DeltaEntry(Origin(2, 1), 17, 400, 3, None)],
    "several": [
        DeltaEntry(Origin(2, 0), 0, 3, 1, b"abc"),
        DeltaEntry(Origin(3, 7), 9, 1, 2, None),
        DeltaEntry(Origin(2, 0), 3, 1, 1, b"d"),
    ],
    "marked": [
        DeltaEntry(Origin(2, 0), 0, 3, 1, b"abc", HistoryMark(0, 3, 0x352441C2)),
        DeltaEntry(Origin(3, 7), 900, 100, 2, None, HistoryMark(250, 1000, 0xFFFFFFFF)),
        DeltaEntry(Origin(2, 0), 3, 1, 1, b"d"),
    ],
}


def encode_all(entries: Iterable[DeltaEntry]) -> list[bytes]:
    return [deltas.encode_entry(*entry) for entry in entries]


@pytest.mark.parametrize(
    ("file", "make"),
    [
        ("core_determinants.json", golden_log),
        ("core_determinants_sent.json", lambda: golden_log(codec.append_sent)),
        ("core_determinants_watermark.json", golden_watermarks),
        ("core_determinants_answers.json", golden_answers),
        ("core_determinants_durations.json", golden_durations),
        ("core_deltas_v2.json", golden_deltas),
    ],
)
def test_formats_are_as_they_were(file: str, make: object) -> None:
    """A difference here means a new format version, not a new golden file."""
    assert make() == json.loads((GOLDEN / file).read_text("utf-8"))  # type: ignore[operator]


# -------------------------------------------------------------------- deltas


def test_deltas_of_the_version_before_marks_are_read() -> None:
    for name, raw in json.loads((GOLDEN / "core_deltas_v1.json").read_text("utf-8")).items():
        assert deltas.decode_delta(bytes.fromhex(raw)) == GOLDEN_ENTRIES[name]


def test_a_mark_from_before_the_log_began_or_cut_off_is_refused() -> None:
    whole = deltas.encode_entry(Origin(2, 0), 0, 3, 1, b"abc", HistoryMark(0, 3, 7))
    for body in (whole[:-1], whole[:-4], whole[:-5], whole[:-5] + b"\x04" + whole[-4:]):
        with pytest.raises(LogCorrupt):
            deltas.decode_delta(deltas.encode_delta([body]))


def entry_of(
    origin: Origin, start: int, hop: int, data: bytes | None, length: int, mark: tuple[int, int] | None
) -> DeltaEntry:
    length = length if data is None else len(data)
    end = start + length
    marked = None if mark is None else HistoryMark(min(mark[0], end), end, mark[1])
    return DeltaEntry(origin, start, length, hop, data, marked)


entries = st.builds(
    entry_of,
    st.builds(Origin, st.integers(1, NODE_MAX), st.integers(0, 10_000)),
    naturals,
    st.integers(1, 40),
    st.none() | st.binary(max_size=30),
    naturals,
    st.none() | st.tuples(naturals, st.integers(0, 2**32 - 1)),
)


@quick
@given(st.lists(entries, max_size=6))
def test_deltas_read_back(given_entries: list[DeltaEntry]) -> None:
    assert deltas.decode_delta(deltas.encode_delta(encode_all(given_entries))) == given_entries


@quick
@given(st.lists(entries, max_size=4), st.data())
def test_damaged_delta_is_refused(given_entries: list[DeltaEntry], data: st.DataObject) -> None:
    raw = bytearray(deltas.encode_delta(encode_all(given_entries)))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(LogCorrupt):
        deltas.decode_delta(bytes(raw))


@quick
@given(st.binary(max_size=40))
def test_sealed_garbage_raises_only_log_corrupt(body: bytes) -> None:
    with contextlib.suppress(LogCorrupt):
        deltas.decode_delta(deltas.encode_delta([body]))
