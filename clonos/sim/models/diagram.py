"""An execution of a model as text: what the process does from top to bottom, and what each receiver sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from clonos.sim.models.execution import (
    RECEIVERS,
    Checkpoint,
    Crash,
    Function,
    Row,
    Sent,
    State,
    Step,
    Take,
    World,
    perform,
)
from clonos.sim.models.search import Broken

_PROCESS: Final = 44
_RECEIVER: Final = 26


def drawn(broken: Broken) -> str:
    """With the contradiction at its end."""
    return "\n".join([*_lines(broken), "", f"wrong: {broken.why}"])


def _lines(broken: Broken) -> Iterator[str]:
    yield _line("process", [f"receiver {to + 1}" for to in range(RECEIVERS)])
    yield _line("-" * (_PROCESS - 2), ["-" * (_RECEIVER - 2)] * RECEIVERS)
    state = State.first(broken.world)
    for step in broken.steps:
        state, sent = perform(broken.world, broken.identity, state, step)
        yield _line(_did(step, sent, state, broken.world), _received(sent, broken.world))


def _line(process: str, receivers: list[str]) -> str:
    cells = [process.ljust(_PROCESS), *(each.ljust(_RECEIVER) for each in receivers)]
    return "".join(cells).rstrip()


def _did(step: Step, sent: Sent | None, state: State, world: World) -> str:
    match step:
        case Checkpoint():
            return "[] takes a checkpoint"
        case Crash():
            number = sum(state.kept.taken)
            return f"XX is lost; back to {f'its checkpoint, behind {number}' if number else 'the beginning'}"
        case Take() if sent is not None:
            arrow = "-" * (1 + sent.to * 3) + ">"
            return f"takes {sent.row.record}, sends {_text(sent.row, world)} as {sent.identity} {arrow}"
    raise AssertionError("a record is taken, and nothing is sent")


def _received(sent: Sent | None, world: World) -> list[str]:
    cells = [""] * RECEIVERS
    if sent is not None:
        said = "sees" if sent.is_taken else "has had"
        cells[sent.to] = f"{said} {_text(sent.row, world) if sent.is_taken else sent.identity}"
    return cells


def _text(row: Row, world: World) -> str:
    match world.function:
        case Function.MAP:
            return row.record
        case Function.COUNT:
            return f"{row.record} (the {_ORDINALS[row.with_]})"
        case Function.DRAW:
            return f"{row.record} (drew {row.with_})"


_ORDINALS: Final = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th"}
