"""The same scripted scenarios against the conduit's model and against the plugin's protocol class."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clonos.environment import find_java
from clonos.protocol.fence import Fence
from clonos.protocol.roles import conduit_model as conduit

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*.jsonl"))
RULES = set(range(1, 26))
WALKS = range(400)
DEFAULT_FIELDS: dict[str, dict[str, Any]] = {
    "welcome": {"window": 8, "window_bytes": 1 << 20, "log_end": 0},
    "standby_welcome": {"window": 8, "window_bytes": 1 << 20},
    "sealed": {"rows": 1, "bytes": 100},
    "output": {
        "acked_input": 0,
        "emitted_output": 0,
        "log_start": 0,
        "log": "",
        "rows": 0,
        "first": 0,
        "last": 0,
    },
    "replica_error": {"traceback": ""},
}


def plain_limits(limits: conduit.Limits) -> dict[str, Any]:
    """As a scenario has them."""
    return {**dataclasses.asdict(limits), "fence": limits.fence.text}


DEFAULT_LIMITS = plain_limits(conduit.Limits(tick_ms=1 << 40, heartbeat_ms=1 << 40))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


EVENTS = {snake(kind.__name__): kind for kind in conduit.Event.__args__}


def complete(path: Path) -> list[dict[str, Any]]:
    """A scenario with every default filled in, as both sides play it."""
    steps: list[dict[str, Any]] = []
    now = 0
    for line in path.read_text().splitlines():
        step = json.loads(line)
        if "event" in step:
            now = step.get("at", now)
            step = {**DEFAULT_FIELDS.get(step["event"], {}), **step, "at": now}
        elif "about" in step:
            step["limits"] = {**DEFAULT_LIMITS, **step.get("limits", {})}
        steps.append(step)
    return steps


def expectations(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is expected after each event; an event without an expectation expects no action."""
    expected: list[dict[str, Any]] = []
    for step in steps:
        if "event" in step:
            expected.append({"expect": [], "event": step})
        elif "expect" in step:
            expected[-1] |= step
    return expected


def played_by_model(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    limits = steps[0]["limits"]
    machine = conduit.Conduit(conduit.Limits(**{**limits, "fence": Fence.parse(limits["fence"])}))
    seen = []
    for step in steps[1:]:
        if "event" not in step:
            continue
        actions = machine.handle(as_event(step), step["at"])
        seen.append(
            {
                "actions": [as_json(action) for action in actions],
                "state": machine.state.value,
                "next": machine.next_time,
            }
        )
    return seen


def as_event(step: dict[str, Any]) -> conduit.Event:
    kind = EVENTS[step["event"]]
    fields = {field.name: step[field.name] for field in dataclasses.fields(kind)}
    if "log" in fields:
        fields["log"] = bytes.fromhex(fields["log"])
    event: conduit.Event = kind(**fields)
    return event


def as_json(action: conduit.Action) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(action)]
    return {
        "action": snake(type(action).__name__),
        **{name: as_plain(getattr(action, name)) for name in names},
    }


def as_plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Fence):
        return value.text
    return [as_plain(each) for each in value] if isinstance(value, tuple) else value


def compare(expected: list[dict[str, Any]], seen: list[dict[str, Any]]) -> None:
    assert len(seen) == len(expected)
    for number, (wanted, found) in enumerate(zip(expected, seen), start=1):
        where = f"event {number}: {wanted['event']}"
        assert [action["action"] for action in found["actions"]] == [
            action["action"] for action in wanted["expect"]
        ], where
        for want, have in zip(wanted["expect"], found["actions"]):
            for name, value in want.items():
                fits = value in have[name] if name == "message" else value == have[name]
                assert fits, f"{where}: {name} of {have}"
        if "state" in wanted:
            assert found["state"] == wanted["state"], where


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_model_follows_the_scenario(path: Path) -> None:
    steps = complete(path)
    compare(expectations(steps), played_by_model(steps))


def random_event(random: Random, sent: int, emitted_output: int) -> dict[str, Any]:
    """An event that mostly makes sense: the interesting paths lie behind sensible beginnings."""
    log_start = random.randrange(8)
    rows = random.choice([0, 0, 1, 3])
    first = emitted_output + 1 if random.random() < 0.9 else random.randrange(6)
    last = first + rows - 1
    choices: list[tuple[int, dict[str, Any]]] = [
        (8, {"event": "rows", "rows": random.randrange(1, 12), "bytes": random.randrange(1, 900)}),
        (2, {"event": "rows", "rows": 0, "bytes": random.randrange(1, 900)}),
        (2, {"event": "watermarks"}),
        (6, {"event": "time"}),
        (
            5,
            {
                "event": "welcome",
                "window": random.randrange(1, 5),
                "window_bytes": random.randrange(500, 3000),
                "log_end": random.randrange(12),
            },
        ),
        (
            2,
            {
                "event": "flush_log",
                "log_start": log_start,
                "log": "".join(f"{at:02x}" for at in range(log_start, 9)),
            },
        ),
        (3, {"event": "checkpointed", "seq": random.randrange(sent + 1), "log_offset": random.randrange(9)}),
        (3, {"event": "lost", "reason": "gone"}),
        (5, {"event": "connected"}),
        (2, {"event": "connect_failed", "reason": "refused"}),
        (1, {"event": "exhausted"}),
        (1, {"event": "ended", "emitted_output": emitted_output}),
        (2, {"event": "heartbeat", "progress": 1}),
        (1, {"event": "passed_over"}),
        (1, {"event": random.choice(["paused", "resumed", "heard"])}),
        (9, {"event": "standby_connected"}),
        (2, {"event": "standby_acked", "acked_input": random.randrange(sent + 2)}),
        (2, {"event": "standby_heard"}),
        (1, {"event": "standby_lost", "reason": "gone"}),
        (9, {"event": "standby_welcome", "window": random.randrange(1, 5), "window_bytes": 900}),
        (1, {"event": "replica_error", "error": "E", "message": "m", "retryable": True, "traceback": ""}),
        (
            9,
            {
                "event": "output",
                "acked_input": random.randrange(sent + 1) if random.random() < 0.97 else sent + 1,
                "emitted_output": max(last, emitted_output) if rows else emitted_output,
                "log_start": log_start,
                "log": "".join(f"{offset:02x}" for offset in range(log_start, random.randrange(8, 12))),
                "rows": rows,
                "first": first if rows else 0,
                "last": last if rows else 0,
            },
        ),
    ]
    return random.choices([step for _, step in choices], [weight for weight, _ in choices])[0]


def random_scenario(seed: int) -> list[dict[str, Any]]:
    """A long walk, steered by the model so that it answers `Seal` and keeps numbers near what is possible."""
    random = Random(seed)
    limits = conduit.Limits(
        bundle_rows=8, idle_bundles=2, flush_ms=3, inflight_bytes=1500, tick_ms=7, heartbeat_ms=40,
        connect_ms=60, attempts=4, standbys=seed % 2, passive=seed % 4 == 3, first_server=seed % 2 * (seed // 4 % 2),
    )  # fmt: skip
    steps: list[dict[str, Any]] = [{"limits": plain_limits(limits)}]
    machine = conduit.Conduit(limits)
    now = sent = emitted_output = 0
    step: dict[str, Any] = {"event": "start"}
    for _ in range(120):
        now += random.choice([0, 0, 1, 3, 10])
        step = {**step, "at": now}
        steps.append(step)
        actions = machine.handle(as_event(step), now)
        sent = max([sent, *(action.seq for action in actions if isinstance(action, conduit.Send))])
        if any(isinstance(action, conduit.PassOn) and action.rows for action in actions):
            emitted_output = step["emitted_output"]
        seal = next((action for action in actions if isinstance(action, conduit.Seal)), None)
        if seal is not None:
            step = {"event": "sealed", "seq": seal.seq, "rows": 1, "bytes": random.randrange(1, 900)}
        else:
            step = random_event(random, sent, emitted_output)
    return steps


@pytest.fixture(scope="module")
def played_by_plugin(plugin_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """All scenarios, played by one JVM."""
    folder = tmp_path_factory.mktemp("scenarios")
    files = []
    scripts = {path.name: complete(path) for path in SCENARIOS}
    scripts |= {f"walk {seed}": random_scenario(seed) for seed in WALKS}
    for name, steps in scripts.items():
        target = folder / name
        target.write_text("".join(json.dumps(step) + "\n" for step in steps))
        files.append(str(target))
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    jars = Path(spec.origin).parent / "jars" / "*"
    result = subprocess.run(
        [
            str(find_java("java")),
            "-cp",
            f"{plugin_jar}:{jars}",
            "org.clonos.spark.conduit.ScenarioMain",
            *files,
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    played: dict[str, list[Any]] = {}
    for line in result.stdout.splitlines():
        seen = json.loads(line)
        if "file" in seen:
            current = played.setdefault(Path(seen["file"]).name, [])
        else:
            current.append(seen)
    return played


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_plugin_follows_the_scenario(path: Path, played_by_plugin: dict[str, list[Any]]) -> None:
    steps = complete(path)
    compare(expectations(steps), played_by_plugin[path.name])


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_both_do_exactly_the_same(path: Path, played_by_plugin: dict[str, list[Any]]) -> None:
    assert played_by_plugin[path.name] == played_by_model(complete(path))


def test_both_do_the_same_on_random_walks(played_by_plugin: dict[str, list[Any]]) -> None:
    reached = {"end_standby"}  # needs a walk that makes sense to its end: a scenario has it
    for seed in WALKS:
        walked = played_by_model(random_scenario(seed))
        assert played_by_plugin[f"walk {seed}"] == walked, seed
        reached |= {action["action"] for step in walked for action in step["actions"]}
        reached |= {step["state"] for step in walked}
    assert reached >= {snake(kind.__name__) for kind in conduit.Action.__args__}
    assert reached >= {state.value for state in conduit.State}


def test_every_rule_has_a_scenario() -> None:
    covered = {rule for path in SCENARIOS for rule in complete(path)[0]["rules"]}
    assert covered == RULES
