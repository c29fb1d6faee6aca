"""Determinants for people and programs: a step as a map, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clonos.errors import ClonosError
from clonos.protocol.ids import Epoch, channel_origin
from clonos.protocol.recovery.causal.causal_log import CausalLog
from clonos.protocol.recovery.causal.determinant import Kind, Outcome, Step
from clonos.storage.dead_letters import DeadLetter
from clonos.tools.log.reading import Found, contiguous, read_steps
from clonos.values import state_codec as values
from clonos.values.readable import key_said, moment, span


def outcome_said(outcome: Outcome | None) -> dict[str, Any]:
    """What a call or an effect gave, without running any code of it."""
    if outcome is None:
        return {"lost": True}
    return _payload_said(outcome) | ({} if outcome.took is None else {"took_us": outcome.took})


def _payload_said(outcome: Outcome) -> dict[str, Any]:
    try:
        value = values.decode(outcome.payload)
        if outcome.ok:
            return {"returned": value}
        module, name, _, text = value
        return {"raised": f"{module}.{name}: {text}"}
    except (ClonosError, TypeError, ValueError):
        return {"returned" if outcome.ok else "raised": outcome.payload.hex()}


def step_said(step: Step, epoch: Epoch | None) -> dict[str, Any]:
    """The step as a map; what it does not have is left out."""
    said: dict[str, Any] = {"start": step.start, "stop": step.stop, "epoch": epoch, "step": step.kind.name}
    if step.kind is Kind.BOUNDARY:
        return {**said, "seed": step.seed, **({"program": step.program} if step.program else {})}
    if step.kind is Kind.CHECKPOINT:
        return said
    if step.kind is Kind.ORDER:
        said["order"] = [
            {"channel": channel, "from": str(channel_origin(channel)), "count": count}
            for channel, count in step.runs
        ]
    else:
        said["fired_at"] = moment(step.fired_at)
        if step.watermark is not None:
            said["watermark"] = moment(step.watermark)
    if step.clocks:
        said["clock"] = moment(step.clocks[0])
    if step.instants:
        said["instants"] = [moment(reading) for reading in step.instants]
    if step.calls:
        said["calls"] = [{"name": call.name, **outcome_said(call)} for call in step.calls]
    if step.answers:
        said["answers"] = [
            {"call": each.number, "name": each.outcome.name, **outcome_said(each.outcome)}
            for each in step.answers
        ]
    if step.effects:
        said["effects"] = [{"key": effect.key, **outcome_said(effect.outcome)} for effect in step.effects]
    if step.skip is not None:
        said["ran_before_skip"] = step.skip
    if step.complete:
        return {**said, "outputs": step.outputs, "digest": f"{step.digest:08x}"}
    return {**said, "open": True}


def steps_said(log: CausalLog) -> Iterator[dict[str, Any]]:
    for start, data in contiguous(log):
        epoch: Epoch | None = None
        for step in read_steps(start, data).steps:
            epoch = step.epoch if step.kind is Kind.BOUNDARY else epoch
            yield step_said(step, epoch)


def letter_said(letter: DeadLetter) -> dict[str, Any]:
    return {
        "operator": letter.operator,
        "version": letter.operator_version,
        "form": letter.form,
        "node": letter.node,
        "instance": letter.instance,
        "epoch": letter.epoch,
        "channel": letter.channel,
        "from": str(channel_origin(letter.channel)),
        "position": letter.position,
        "key": list(letter.key),
        "row": letter.table().to_pylist()[0],
        "schema": {field.name: str(field.type) for field in letter.table().schema},
        "state": [{"key": key_said(data), "value": value} for data, value in letter.state.items()],
        "watermark": None if letter.watermark is None else moment(letter.watermark),
        "deaths": letter.deaths,
    }


def found_said(found: Found) -> dict[str, Any]:
    """Everything that was read."""
    said: dict[str, Any] = {"kind": found.kind, "path": str(found.path)}
    if found.letter is not None:
        said["letter"] = letter_said(found.letter)
    if found.own is not None:
        said["steps"] = list(steps_said(found.own))
    if found.cursors:
        said["visible"] = [
            {"channel": channel, "from": str(channel_origin(channel)), "position": position}
            for channel, position in sorted(found.cursors.items())
        ]
    if found.letter is None:
        said["received"] = [
            {"origin": str(origin), "steps": list(steps_said(log))}
            for origin, log in sorted(found.received.items())
        ]
        said["elided"] = {str(origin): end for origin, end in sorted(found.elided.items())}
    return {**said, "problems": found.problems, "notes": found.notes}


def line_of(said: dict[str, Any]) -> str:
    """A step in one line."""
    epoch = "?" if said["epoch"] is None else said["epoch"]
    parts = [f"{said['start']}..{said['stop']}".ljust(18), f"epoch {epoch}".ljust(10), said["step"].ljust(9)]
    if "seed" in said:
        parts.append(f"seed {said['seed']:016x}")
    if "order" in said:
        parts.append(", ".join(f"{run['count']} of {run['from']}" for run in said["order"]))
    if "fired_at" in said:
        parts.append(f"due at {said['fired_at']}")
    if "watermark" in said:
        parts.append(f"| watermark {said['watermark']}")
    if "clock" in said:
        parts.append(f"| clock {said['clock']}")
    if "instants" in said:
        parts.append(f"| exact {', '.join(said['instants'])}")
    parts += [f"| call {call['name']} {_outcome(call)}" for call in said.get("calls", ())]
    parts += [
        f"| answer to call {each['call']}, {each['name']} {_outcome(each)}"
        for each in said.get("answers", ())
    ]
    parts += [f"| effect {effect['key']!r} {_outcome(effect)}" for effect in said.get("effects", ())]
    if "ran_before_skip" in said:
        parts.append(f"| passed over: record {said['ran_before_skip'] + 1} of the step")
    if "digest" in said:
        parts.append(f"| {said['outputs']} rows, digest {said['digest']}")
    if "open" in said:
        parts.append("| open: its end is not recorded")
    return " ".join(parts)


def _outcome(said: dict[str, Any]) -> str:
    took = f" ({span(said['took_us'])})" if "took_us" in said else ""
    if "returned" in said:
        return f"-> {said['returned']!r}{took}"
    return f"raised {said['raised']}{took}" if "raised" in said else "-> lost"


def lines_of(said: dict[str, Any]) -> Iterator[str]:
    """`found_said` as text."""
    yield f"{said['kind']} {said['path']}"
    if "letter" in said:
        yield from _letter_lines(said["letter"])
        if said.get("steps"):
            yield "recorded of its step:"
    yield from (line_of(step) for step in said.get("steps", ()))
    if said.get("visible"):
        yield "visible: " + ", ".join(f"{one['from']} up to {one['position']}" for one in said["visible"])
    for log in said.get("received", ()):
        yield f"received, log of {log['origin']}:"
        yield from (line_of(step) for step in log["steps"])
    for origin, end in said.get("elided", {}).items():
        yield f"log of {origin} reaches {end}; its content was not shared this far"
    yield from (f"note: {note}" for note in said["notes"])
    yield from (f"WRONG: {problem}" for problem in said["problems"])


def _letter_lines(said: dict[str, Any]) -> Iterator[str]:
    place = f"operator {said['operator']!r} (version {said['version']}, {said['form']})"
    yield f"{place}, instance {said['instance']}, epoch {said['epoch']}"
    yield f"record {said['position']} of the channel from {said['from']} (channel {said['channel']})"
    yield f"row      {said['row']!r}"
    yield f"schema   {', '.join(f'{name} {kind}' for name, kind in said['schema'].items())}"
    yield f"key      {said['key']!r}"
    for one in said["state"]:
        yield f"state    {one['key']!r} = {one['value']!r}"
    if said["watermark"] is not None:
        yield f"watermark {said['watermark']}"
    for death in said["deaths"]:
        yield f"death    {death['message']} ({death['kind']}, signal {death['signal']}, code {death['code']})"
        yield from (f"         {line}" for line in str(death["stderr"]).splitlines()[-12:])
