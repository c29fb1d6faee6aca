"""`clonos log`: what it prints of stores, write-ahead logs and dead letters, what it finds wrong, and its replay."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos import cli
from clonos.errors import ConfigurationError
from clonos.protocol.ids import Origin, channel_id
from clonos.protocol.recovery.causal import determinant_codec as codec
from clonos.protocol.recovery.causal.delta import encode_delta, encode_entry
from clonos.protocol.recovery.causal.determinant import Answer, CallNumber, Outcome
from clonos.sinks.sink_wal import SinkWal
from clonos.sinks.wal_format import Kind, Record
from clonos.storage.dead_letters import DeadLetter, LetterBox
from clonos.storage.log_store import LogStore
from clonos.storage.one_row import row_stream
from clonos.tools.log.dead_letter_replay import replay_letter
from clonos.tools.log.reading import contiguous, read, read_steps
from clonos.values import state_codec as values
from clonos.values.key_codec import pack
from clonos_standby.replica.outcomes import Outcomes

UPSTREAM = channel_id(1, 3)
INPUT = pa.schema([("card", pa.string()), ("amount", pa.int64())])
OUTPUT = pa.schema([("card", pa.string()), ("spent", pa.int64())])


def chunk(*entries: Any) -> bytes:
    out = bytearray()
    for append, *arguments in entries:
        append(out, *arguments)
    return codec.seal(out)


BEGIN = chunk((codec.append_boundary, 7, 255))
CALLED = chunk(
    (codec.append_order, [(UPSTREAM, 2)]),
    (codec.append_clock, 1_700_000_000_000_000),
    (codec.append_call, Outcome("rate", True, values.encode(2.5))),
    (codec.append_call, Outcomes().capture("ask", int, ("x",), {})),
    (codec.append_sent, 2, 0xAB),
)
TOLD = [
    chunk((codec.append_order, [(UPSTREAM, 1)]), (codec.append_effect, "pay-1")),
    chunk((codec.append_effect_done, Outcome("pay-1", True, values.encode("ok"))), (codec.append_sent, 0, 0)),
]
SKIPPED = chunk((codec.append_order, [(UPSTREAM, 1)]), (codec.append_skip, 0), (codec.append_sent, 0, 0))
MOVED = chunk((codec.append_timer, 1_700_000_000_000_000, 1_699_999_990_000_000), (codec.append_sent, 0, 0))
ANSWERED = chunk(
    (codec.append_order, [(UPSTREAM, 2)]),
    (codec.append_answer, Answer(CallNumber(1), Outcome("rate", True, values.encode(2.5)))),
    (codec.append_sent, 0, 0),
)
WHOLE = [BEGIN, CALLED, *TOLD, SKIPPED, MOVED, ANSWERED]


def store(path: Path, chunks: list[bytes], *, at: int = 0, deltas: tuple[bytes, ...] = ()) -> LogStore:
    made = LogStore(str(path))
    for data in chunks:
        made.append((), (at, data))
        at += len(data)
    made.append(deltas, None)
    return made


def clonos_log(*arguments: Any) -> int:
    return cli.main(["log", *map(str, arguments)])


# ------------------------------------------------------------------- inspect


def test_a_store_is_read_while_its_owner_lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delta = encode_delta(
        [
            encode_entry(Origin(1, 3), 0, len(BEGIN), 1, BEGIN),
            encode_entry(Origin(1, 4), 0, 50, 2, None),
        ]
    )
    owner = store(tmp_path / "log", WHOLE, deltas=(delta,))
    assert clonos_log("inspect", tmp_path / "log") == 0
    text = capsys.readouterr().out
    for part in (
        f"0..{len(BEGIN)}",
        "epoch 7",
        "BOUNDARY  seed 00000000000000ff",
        "2 of 1/3 | clock 2023-11-14T22:13:20Z | call rate -> 2.5 | call ask raised builtins.ValueError: invalid",
        "2 rows, digest 000000ab",
        "effect 'pay-1' -> 'ok'",
        "passed over: record 1 of the step",
        "due at 2023-11-14T22:13:20Z | watermark 2023-11-14T22:13:10Z",
        "2 of 1/3 | answer to call 1, rate -> 2.5 | 0 rows",
        "received, log of 1/3:",
        "log of 1/4 reaches 50",
    ):
        assert part in text, text
    assert clonos_log("inspect", tmp_path / "log", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in said["steps"]] == [
        "BOUNDARY",
        "ORDER",
        "ORDER",
        "ORDER",
        "TIMER",
        "ORDER",
    ]
    assert {step["epoch"] for step in said["steps"]} == {7}
    assert said["steps"][1]["order"] == [{"channel": UPSTREAM, "from": "1/3", "count": 2}]
    assert said["received"][0]["steps"][0]["seed"] == 255
    assert clonos_log("verify", tmp_path / "log") == 0
    owner.append((), (owner.end, BEGIN))  # it was not disturbed
    owner.close()


def test_a_log_that_was_truncated_in_the_middle_of_a_step(tmp_path: Path) -> None:
    store(tmp_path / "log", [TOLD[1], SKIPPED], at=1000).close()
    found = read(tmp_path / "log")
    assert found.own is not None and not found.problems
    ((start, data),) = contiguous(found.own)
    steps = read_steps(start, data)
    assert (steps.begins, [step.skip for step in steps.steps]) == (1000 + len(TOLD[1]), [0])


def test_a_write_ahead_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delta = encode_delta([encode_entry(Origin(2, 0), 0, len(BEGIN + CALLED), 1, BEGIN + CALLED)])
    log = SinkWal(str(tmp_path), durable=False)
    log.open("query", (3, 0), 1)
    with log.held():
        log.rotate(0, {})
        log.append(Record(kind=Kind.BUNDLE, cursors={Origin(2, 0).channel: 5}, deltas=[delta], rows=b"x"))
    place = tmp_path / "query" / "3-0"
    assert clonos_log("inspect", place) == 0
    text = capsys.readouterr().out
    assert "visible: 2/0 up to 5" in text and "call rate -> 2.5" in text
    log.close()
    (segment,) = place.glob("ahead-*.log")
    raw = bytearray(segment.read_bytes())
    segment.write_bytes(raw[:-3])
    assert clonos_log("verify", place) == 0, "the last append may be under way"
    assert "not finished" in capsys.readouterr().out
    raw[20] ^= 1
    segment.write_bytes(raw)
    assert clonos_log("verify", segment) == 1
    assert "damaged at byte" in capsys.readouterr().out


def test_what_is_no_log_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("hello")
    for path in (tmp_path, tmp_path / "x", tmp_path / "none"):
        assert clonos_log("inspect", path) == 1
        assert "is no causal log" in capsys.readouterr().err


# -------------------------------------------------------------------- verify


def wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert clonos_log("verify", path) == 1
    return capsys.readouterr().out


def test_what_cannot_be_read_does_not_hide_what_stands_behind_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path / "log", [BEGIN]).close()
    assert clonos_log("verify", tmp_path / "nowhere", tmp_path / "log") == 1
    said = capsys.readouterr().out
    assert "nowhere: cannot be read" in said and "is no causal log" in said
    assert f"{tmp_path / 'log'}: " in said and "in order" in said


def test_a_hole_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = store(tmp_path / "log", [BEGIN])
    made.append((), (made.end + 10, CALLED))
    made.close()
    assert f"lacks offsets {len(BEGIN)}..{len(BEGIN) + 10}" in wrong(tmp_path / "log", capsys)


def test_a_chunk_that_fails_its_checksum_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = bytearray(CALLED)
    bad[-1] ^= 1
    store(tmp_path / "log", [BEGIN, bytes(bad)]).close()
    text = wrong(tmp_path / "log", capsys)
    assert f"offset {len(BEGIN)}" in text and "fails its checksum" in text
    assert clonos_log("inspect", tmp_path / "log") == 1
    assert "BOUNDARY" in capsys.readouterr().out, "what comes before the damage is shown"


def test_steps_that_do_not_fit_together_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path / "log", [BEGIN, TOLD[0], CALLED]).close()
    assert "inside another one" in wrong(tmp_path / "log", capsys)


def test_two_histories_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deltas = tuple(
        encode_delta([encode_entry(Origin(2, 0), 0, len(data), 1, data)])
        for data in (BEGIN, chunk((codec.append_boundary, 7, 254)))
    )
    store(tmp_path / "log", [], deltas=deltas).close()
    assert "two histories" in wrong(tmp_path / "log", capsys)


def test_a_damaged_letter_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(LetterBox(str(tmp_path), 2, 0, fence=1).write(a_letter()))
    assert clonos_log("verify", path) == 0
    raw = bytearray(path.read_bytes())
    raw[50] ^= 1
    path.write_bytes(raw)
    assert "is damaged: checksum" in wrong(path, capsys)
    assert clonos_log("replay", path, "--function", "a:b") == 1
    assert "cannot be replayed" in capsys.readouterr().err


# -------------------------------------------------------------------- replay

FUNCTIONS = """
import os, signal, time

def spend(key, row, ctx):
    ctx.state["spent"] = ctx.state.get("spent", 0) + row.amount
    yield key[0], ctx.state["spent"]

def dies(key, row, ctx):
    os.kill(os.getpid(), signal.SIGSEGV)

def leaves(key, row, ctx):
    os._exit(0)

def raises(key, row, ctx):
    raise LookupError("no such street")

def hangs(key, row, ctx):
    time.sleep(600)

def asks(key, row, ctx):
    yield key[0], ctx.call(rate) + ctx.call(rate)

def rate():
    return 100

def acts(key, row, ctx):
    ctx.effect(rate, key="pay-2")
    yield key[0], 1

def draws(key, row, ctx):
    ctx.timer(5)
    yield key[0], ctx.random.getrandbits(30)

def stamps(key, row, ctx):
    yield key[0], int(time.time())

def misfits(key, row, ctx):
    yield key[0], "much"

def alone(row):
    return tuple(row)

def of_batch(batch):
    return batch.rename_columns(["card", "spent"])

def of_batches(batches):
    yield from map(of_batch, batches)

async def waits(key, row, ctx):
    first, second = await ctx.gather(ctx.call(rate), ctx.call(rate))
    yield key[0], first - second

def splits(key, row, ctx):
    ctx.side_output("late", (row.amount,))
    yield key[0], row.amount
"""
CALL_OF_RATE = (codec.append_call, Outcome("rate", True, values.encode(5)))
OPEN = (codec.append_order, [(UPSTREAM, 1)])


def a_letter(**changes: Any) -> DeadLetter:
    row = pa.RecordBatch.from_pydict({"card": ["c1"], "amount": [7]}, schema=INPUT)
    letter = DeadLetter(
        operator="review",
        operator_version="2",
        form="process",
        node=2,
        instance=0,
        epoch=5,
        channel=UPSTREAM,
        position=9,
        zone="UTC",
        row=row_stream(row),
        output=OUTPUT.serialize().to_pybytes(),
        key=("c1",),
        state={pack(("c1",)): {"spent": 30}},
        watermark=None,
        random=random.Random(1).getstate(),
        recorded=chunk(OPEN),
        deaths=[{"kind": "signal", "signal": "SIGSEGV", "code": None, "message": "died", "stderr": "in f"}],
    )
    return replace(letter, **changes)


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    (tmp_path / "mended.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)

    def at(function: str, *more: Any, **changes: Any) -> tuple[int, str]:
        path = LetterBox(str(tmp_path), 2, 0, fence=1).write(a_letter(**changes))
        code = clonos_log("replay", path, "--function", f"mended:{function}", *more)
        return code, capsys.readouterr().out

    return at


def test_rows_of_side_outputs_are_shown_as_such(replay: Any) -> None:
    late = {"late": pa.schema([("amount", pa.int64())]).serialize().to_pybytes()}
    code, text = replay("splits", side_outputs=late)
    assert code == 0 and "{'amount': 7} in the side output 'late'" in text
    code, text = replay("splits")
    assert code == 1 and "has no side output 'late'" in text


def test_a_letter_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = LetterBox(str(tmp_path), 2, 0, fence=1).write(a_letter())
    assert clonos_log("inspect", path) == 0
    text = capsys.readouterr().out
    for part in (
        "operator 'review' (version 2, process), instance 0, epoch 5",
        "record 9 of the channel from 1/3",
        "{'card': 'c1', 'amount': 7}",
        "state    ('c1',) = {'spent': 30}",
        "signal SIGSEGV",
        "in f",
        "open: its end is not recorded",
    ):
        assert part in text, text


def test_a_mended_function_gets_through(replay: Any) -> None:
    code, text = replay("spend")
    assert code == 0
    assert "row      {'card': 'c1', 'spent': 37}" in text
    assert "state    ('c1',): {'spent': 30} -> {'spent': 37}" in text
    assert text.endswith("got through\n")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("dies", "died: the function killed its process: SIGSEGV"),
        ("leaves", "died: the function ended its process with exit code 0"),
        ("raises", "LookupError: no such street"),
        ("nothing", "cannot be loaded"),
    ],
)
def test_a_function_that_does_not_get_through(replay: Any, function: str, says: str) -> None:
    code, text = replay(function)
    assert code == 1
    assert says in text


def test_a_function_that_hangs(replay: Any) -> None:
    code, text = replay("hangs", "--deadline", 4)
    assert code == 1 and "did not come back within 4 s" in text


def in_process(function: str, *, recorded_only: bool = False, **changes: Any) -> dict[str, Any]:
    """The replay without a process of its own."""
    namespace: dict[str, Any] = {}
    exec(FUNCTIONS, namespace)
    return replay_letter(a_letter(**changes), namespace[function], recorded_only=recorded_only)


def test_what_was_recorded_comes_first_then_live_services() -> None:
    recorded = chunk(OPEN, CALL_OF_RATE)
    said = in_process("asks", recorded=recorded)
    assert said["ended"] == "got through"
    assert said["outputs"] == ["{'card': 'c1', 'spent': 105}"]
    assert said["live"] == ["a call of rate"]
    said = in_process("asks", recorded=recorded, recorded_only=True)
    assert said["ended"] == "diverges" and "nothing further is recorded" in said["why"]


def test_an_async_function_is_given_the_recorded_answers_first() -> None:
    second = Answer(CallNumber(1), Outcome("rate", True, values.encode(5)))
    recorded = chunk(OPEN, (codec.append_answer, second))
    said = in_process("waits", recorded=recorded)
    assert said["ended"] == "got through"
    assert said["outputs"] == ["{'card': 'c1', 'spent': 95}"]
    assert said["live"] == ["the answer to a call of rate"]
    said = in_process("spend", recorded=recorded)
    assert said["why"].endswith("recorded, but not asked for: an answer to a call of rate")


def test_what_was_intercepted_is_given_again(replay: Any) -> None:
    recorded = chunk(OPEN, (codec.append_instants, [1_700_000_000_000_000]))
    status, said = replay("stamps", recorded=recorded, intercept=True)
    assert status == 0 and "'spent': 1700000000}" in said, said
    status, said = replay("stamps", recorded=recorded)
    assert status != 0 and "recorded, but not asked for: an exact clock reading" in said


def test_an_effect_whose_outcome_was_lost_is_asked_for_again() -> None:
    recorded = chunk(OPEN, (codec.append_effect, "pay-2"))
    said = in_process("acts", recorded=recorded)
    assert said["ended"] == "got through" and "its outcome lost" in said["live"][0]
    assert in_process("acts", recorded=recorded, recorded_only=True)["ended"] == "diverges"


def test_a_function_that_contradicts_the_recording() -> None:
    recorded = chunk(OPEN, CALL_OF_RATE, (codec.append_effect, "pay-1"))
    said = in_process("acts", recorded=recorded)
    assert said["ended"] == "diverges"
    assert "recorded was an effect under the key 'pay-1', asked for was one under 'pay-2'" in said["why"]
    said = in_process("spend", recorded=recorded)
    assert said["ended"] == "diverges"
    assert said["why"].endswith("a call of rate, an effect under the key 'pay-1'")


def test_draws_are_those_that_the_record_would_have_had() -> None:
    said = in_process("draws")
    assert said["outputs"] == [f"{{'card': 'c1', 'spent': {random.Random(1).getrandbits(30)}}}"]
    assert said["timers"][0].startswith("set ''")


def test_rows_that_do_not_fit_the_schema_are_no_success() -> None:
    assert in_process("misfits")["ended"] == "raises"


def test_the_other_forms() -> None:
    assert in_process("alone", form="pure map")["outputs"] == ["{'card': 'c1', 'spent': 7}"]
    for function, form in (("of_batch", "pure map_batches"), ("of_batches", "mapInArrow")):
        assert in_process(function, form=form)["outputs"] == ["{'card': 'c1', 'spent': 7}"]
    with pytest.raises(ConfigurationError, match="cannot be given to its function by itself"):
        in_process("spend", form="transformWithState")


def test_json(replay: Any) -> None:
    code, text = replay("spend", "--json")
    said = json.loads(text)
    assert (code, said["ended"], said["outputs"]) == (0, "got through", ["{'card': 'c1', 'spent': 37}"])
