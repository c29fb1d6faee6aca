"""Lineage as it is recorded: its bytes, and how it is read with the log and the input of its epoch, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from clonos.errors import LogCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment, EpochEnded
from clonos.protocol.archive.episode import Episode, put_together
from clonos.protocol.archive.lineage import Derivation
from clonos.protocol.archive.recorded_lineage import RecordedEpoch, recorded_lineage
from clonos.protocol.archive.step_lineage import (
    UNKNOWN,
    Beginning,
    CallForm,
    CallRuns,
    StepCalls,
    decode_entry,
    encode_beginning,
    encode_calls,
    entries_of,
)
from clonos.protocol.engine.given_rows import GivenRows
from clonos.protocol.engine.lineage_recorder import LineageRecorder
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber, RecordId, log_after
from clonos.protocol.ports import Row, StepOperator
from clonos.protocol.recovery.causal import determinant_codec as codec

GOLDEN = Path(__file__).parent.parent / "golden" / "core_step_lineage_v1.bin"
ORIGIN = Origin.of(3, 1)
RECORD, BUNDLE, TIMER, END = CallForm
ENTRIES = (
    encode_beginning(Beginning(OutputNumber(7), {1: 4, 1 << 50: -3})),
    encode_calls(StepCalls([CallRuns(RECORD, [1], [4096])])),
    encode_calls(
        StepCalls([CallRuns(RECORD, [0, 2, 1], [1, 2, 3]), CallRuns(TIMER, [2], [1])], b"\1\1\2\3\2")
    ),
    encode_calls(StepCalls([CallRuns(BUNDLE, [70_000], [1])])),
    encode_calls(StepCalls([CallRuns(END, [0], [1])])),
    encode_calls(StepCalls([])),
    UNKNOWN,
)


def said(calls: object) -> object:
    """What can be compared of an entry."""
    if not isinstance(calls, StepCalls):
        return calls
    return [(each.form, each.by_call()) for each in calls.runs], calls.forms


def test_entries_come_back() -> None:
    assert list(entries_of(b"".join(ENTRIES))) == list(ENTRIES)
    assert [said(decode_entry(entry)) for entry in ENTRIES] == [
        Beginning(OutputNumber(7), {1: 4, 1 << 50: -3}),
        ([(RECORD, [1] * 4096)], b""),
        ([(RECORD, [0, 2, 2, 1, 1, 1]), (TIMER, [2])], b"\1\1\2\3\2"),
        ([(BUNDLE, [70_000])], b""),
        ([(END, [0])], b""),
        ([], b""),
        None,
    ]


def test_entries_of_the_first_version_are_read_and_written() -> None:
    """A difference here means a new kind of entry, not a new golden file."""
    assert GOLDEN.read_bytes() == b"".join(ENTRIES)


def test_damage_is_said_or_is_another_lineage() -> None:
    raw, rng = b"".join(ENTRIES), Random(1)
    for _ in range(500):
        damaged = bytearray(raw)
        damaged[rng.randrange(len(raw))] ^= rng.randrange(1, 256)
        for each in (bytes(damaged), raw[: rng.randrange(len(raw))], rng.randbytes(rng.randrange(40))):
            try:
                for entry in entries_of(each):
                    decode_entry(entry)
            except LogCorrupt as error:
                assert "lineage" in error.message


# ------------------------------------------------------------------------- reading


def sealed(entries: bytearray, outputs: int) -> bytes:
    codec.append_sent(entries, outputs, 0)
    return codec.seal(entries)


def order(runs: Sequence[tuple[int, int]], outputs: int, skip: int | None = None) -> bytes:
    entries = bytearray()
    codec.append_order(entries, runs)
    if skip is not None:
        codec.append_skip(entries, skip)
    return sealed(entries, outputs)


def timer(outputs: int) -> bytes:
    entries = bytearray()
    codec.append_timer(entries, 5)
    return sealed(entries, outputs)


def boundary(epoch: int) -> bytes:
    entries = bytearray()
    codec.append_boundary(entries, Epoch(epoch), 9)
    return codec.seal(entries)


def calls(form: CallForm, *by_call: int, forms: bytes = b"") -> bytes:
    return encode_calls(StepCalls([CallRuns(form, list(by_call), [1] * len(by_call))], forms))


STEPS = (
    (boundary(4), encode_beginning(Beginning(OutputNumber(10), {7: 3}))),
    (order([(7, 2), (9, 1)], 3), calls(RECORD, 0, 2, 1)),
    (timer(2), calls(TIMER, 2)),
    (order([(9, 2), (7, 1)], 1, skip=2), calls(RECORD, 1, 0)),
    (order([(7, 1)], 4), calls(RECORD, 4, forms=b"\1\3")),
    (order([(7, 1), (9, 1)], 2), calls(BUNDLE, 2)),
)
ARRIVED = {7: [2, 3, 5, 6, 8, 10, 12], 9: [0, 1, 2, 3]}
"""With two records that the epoch before has consumed."""
BEGIN = LogOffset(100)
LAST = OutputNumber(22)


def segment(first: int, last: int, fence: int = 1, **changes: object) -> ArchiveSegment:
    """Of the steps from one to another."""
    log = b"".join(log for log, _ in STEPS[first:last])
    start = log_after(BEGIN, b"".join(log for log, _ in STEPS[:first]))
    made: dict[str, object] = {
        "origin": ORIGIN,
        "epoch": Epoch(4),
        "fence": Fence(fence),
        "number": first,
        "written_at": 0,
        "realtime": True,
        "program": "p",
        "epoch_start": BEGIN,
        "log_start": start,
        "log": log,
        "ended": EpochEnded(log_after(start, log), LAST) if last == len(STEPS) else None,
        "lineage": b"".join(entry for _, entry in STEPS[first:last]),
    }
    return ArchiveSegment(**{**made, **changes})  # type: ignore[arg-type]


def read(*segments: ArchiveSegment, arrived: Mapping[int, Sequence[int]] = ARRIVED) -> RecordedEpoch | None:
    episode = put_together(segments)
    assert isinstance(episode, Episode)
    return recorded_lineage(episode, {channel: np.array(each) for channel, each in arrived.items()})


def made(
    first: int, count: int, form: CallForm, *inputs: tuple[int, int], forms: Sequence[int] = ()
) -> Derivation:
    records = tuple(RecordId(*each) for each in inputs)
    number = OutputNumber(first)
    return Derivation(ORIGIN, Epoch(4), form, number, count, records, tuple(forms) or tuple(range(count)))


WHOLE = [
    made(11, 2, RECORD, (7, 6)),
    made(13, 1, RECORD, (9, 0)),
    made(14, 2, TIMER),
    made(16, 1, RECORD, (9, 1)),
    made(17, 4, RECORD, (7, 10), forms=(0, 1, 1, 1)),
    made(21, 2, BUNDLE, (7, 12), (9, 3)),
]


@pytest.mark.parametrize(
    "segments",
    [
        [segment(0, 6)],
        [segment(0, 2), segment(2, 6)],
        [segment(0, 4), segment(2, 6, fence=2)],
        [segment(0, 3), segment(0, 3, fence=2, lineage=None), segment(3, 6, fence=2)],
    ],
)
def test_it_says_which_calls_made_which_rows_of_which_records(segments: list[ArchiveSegment]) -> None:
    """The record at position 8 of channel 7 was passed over."""
    found = read(*segments)
    assert found is not None and list(found.derivations()) == WHOLE
    assert list(found.of_rows([12, 15, 20, 99])) == [WHOLE[0], WHOLE[2], WHOLE[4]]
    wanted = {RecordId(7, 5), RecordId(7, 8), RecordId(7, 10), RecordId(9, 3), RecordId(9, 77)}
    assert list(found.of_records(wanted)) == WHOLE[4:]


def test_a_standby_of_an_earlier_version_has_left_the_end_of_the_epoch_before_too() -> None:
    before = order([(7, 1)], 1)
    whole = segment(0, 6)
    assert whole.lineage is not None
    longer = replace(
        whole,
        log_start=LogOffset(BEGIN - len(before)),
        log=before + whole.log,
        lineage=calls(RECORD, 1) + whole.lineage,
    )
    found = read(longer)
    assert found is not None and list(found.derivations()) == WHOLE


def entries(*changes: tuple[int, bytes]) -> bytes:
    return b"".join(dict(changes).get(at, entry) for at, (_, entry) in enumerate(STEPS))


@pytest.mark.parametrize(
    ("segments", "arrived"),
    [
        pytest.param([segment(0, 6, lineage=None)], ARRIVED, id="not recorded"),
        pytest.param([segment(0, 3), segment(3, 6, lineage=None)], ARRIVED, id="turned off inside"),
        pytest.param([segment(0, 6, lineage=entries((2, UNKNOWN)))], ARRIVED, id="a step that is not known"),
        pytest.param([segment(0, 6, lineage=entries((0, UNKNOWN)))], ARRIVED, id="records had waited"),
        pytest.param([segment(0, 6, lineage=entries((5, b"")))], ARRIVED, id="an entry too few"),
        pytest.param(
            [segment(0, 6, lineage=entries((1, calls(RECORD, 0, 2))))], ARRIVED, id="a call too few"
        ),
        pytest.param(
            [segment(0, 6, lineage=entries((1, calls(RECORD, 0, 2, 2))))], ARRIVED, id="a row too many"
        ),
        pytest.param(
            [segment(0, 6, lineage=entries((1, calls(TIMER, 0, 2, 1))))], ARRIVED, id="not of records"
        ),
        pytest.param(
            [segment(0, 6, lineage=entries((4, calls(RECORD, 4, forms=b"\2\1"))))],
            ARRIVED,
            id="a form too few",
        ),
        pytest.param(
            [segment(0, 4), segment(0, 6, fence=2, lineage=entries((1, calls(RECORD, 2, 0, 1))))],
            ARRIVED,
            id="contradicted",
        ),
        pytest.param(
            [segment(0, 6, ended=EpochEnded(segment(0, 6).log_end, OutputNumber(23)))],
            ARRIVED,
            id="numbers jump",
        ),
        pytest.param([segment(0, 6)], {**ARRIVED, 9: [0, 1, 2]}, id="a record is missing"),
        pytest.param([segment(0, 6)], {**ARRIVED, 7: [2, 3, 5, 6, 8, 10, 11, 12]}, id="a record is left"),
        pytest.param([segment(0, 6)], {7: ARRIVED[7]}, id="a channel is missing"),
    ],
)
def test_what_does_not_fit_together_is_not_said(
    segments: list[ArchiveSegment], arrived: Mapping[int, Sequence[int]]
) -> None:
    assert read(*segments, arrived=arrived) is None


def test_another_history_is_none_of_this_one() -> None:
    """An earlier process has gone on otherwise, and what it has recorded from there on does not count."""
    log = order([(7, 1), (9, 2)], 3)
    start = segment(1, 2).log_start
    other = segment(1, 2, fence=0, log=log, log_start=start, lineage=calls(RECORD, 3, 0, 0))
    found = read(other, segment(0, 6))
    assert found is not None and list(found.derivations()) == WHOLE


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=300))
def test_run_length_comes_back(by_call: list[int]) -> None:
    runs = CallRuns(RECORD, by_call, [1] * len(by_call))
    found = decode_entry(encode_calls(StepCalls([runs])))
    assert isinstance(found, StepCalls) and found.runs[0].by_call() == by_call


# ----------------------------------------------------------------------- recording


class Gives:
    """An operator that gives so many rows for each record, or timer, and tells of it or not."""

    def __init__(self, told: GivenRows, *, one_by_one: bool = True, tells: bool = True) -> None:
        self._told = told
        self._tells = tells
        self.record_at_a_time = one_by_one

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        made: list[Row] = []
        tell = self._told.begin() if self._tells else lambda upto: None
        for (count,) in rows:
            made += [()] * count
            tell(len(made))
        return made

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        return self.bundle([], [(count,) for count, _, _ in due])

    def gathered(self) -> list[Row]:
        return [()]

    def pieces(self) -> AbstractContextManager[None]:
        return nullcontext()


def recorded_by(**more: bool) -> tuple[StepOperator, LineageRecorder, list[bytes]]:
    told, found = GivenRows(), list[bytes]()
    recorder = LineageRecorder(told, lambda at, entry: found.append(entry))
    return recorder.around(Gives(told, **more)), recorder, found


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 3), max_size=600) | st.just([1] * 5000), min_size=1, max_size=3))
def test_what_calls_give_is_recorded_as_it_is(bundles: list[list[int]]) -> None:
    """A step of several bundles, as one that is run record by record, and of timers."""
    operator, recorder, found = recorded_by()
    made = 0
    for each in bundles:
        made += len(operator.bundle([()] * len(each), [(count,) for count in each]))
    made += len(operator.timers([(2, b"", ""), (0, b"", "")], False))
    recorder.step_ends(LogOffset(1), made)
    calls = decode_entry(found[0])
    assert isinstance(calls, StepCalls) and calls.has(made)
    by_form = {
        form: [count for each in calls.runs if each.form is form for count in each.by_call()]
        for form in CallForm
    }
    assert by_form == {
        RECORD: [count for each in bundles for count in each],
        TIMER: [2, 0],
        BUNDLE: [],
        END: [],
    }


def test_what_is_not_told_is_not_known_where_it_matters() -> None:
    operator, recorder, found = recorded_by(tells=False)
    operator.bundle([(), ()], [(1,), (2,)])
    recorder.step_ends(LogOffset(1), 3)
    operator.bundle([()], [(3,)])  # alone it needs not be told
    recorder.step_ends(LogOffset(2), 3)
    operator.timers([(0, b"", ""), (0, b"", "")], True)
    recorder.step_ends(LogOffset(3), 0)
    assert [said(decode_entry(entry)) for entry in found] == [None, ([(RECORD, [3])], b""), ([], b"")]
    operator, recorder, found = recorded_by(tells=False, one_by_one=False)
    operator.bundle([(), ()], [(1,), (2,)])
    operator.gathered()
    recorder.step_ends(LogOffset(1), 4)
    recorder.step_ends(LogOffset(2), 4)  # rows that no call has given
    assert [said(decode_entry(entry)) for entry in found] == [([(BUNDLE, [3]), (END, [1])], b""), None]
