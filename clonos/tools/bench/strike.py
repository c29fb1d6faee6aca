"""Makes a part of a running side fail, alike on both, and says when it did.

- A *replica*: SIGKILL. Victims are taken in the order of the dataflow, natively processes that run the user's function
  and then those of the sink. Three at once are held first and then killed together.
- A *task*: an error at a point of execution (`side.task_faults`), as soon as it is reached.
- The *query*: its Spark jobs are cancelled, until it is another run. A causal query restarts itself.

Natively there may be no process to kill just then: between two batches, or while the query is being restarted. A strike
is made as soon as a process is there within `PATIENCE_S`; else it is left out, and the results say how many there were.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from clonos.errors import NotRunning
from clonos.processes import alive
from clonos.tools.bench.cell import Cell, Failure, Pattern
from clonos.tools.bench.side import Side
from clonos.tools.inject.plan import targets
from clonos.tools.inject.strike import hold
from clonos.tools.live_query import find
from clonos.wire.strikes import NoProcess

PATIENCE_S = 20.0
AT_ONCE = 3
_LOOK_S, _CANCEL_S = 0.002, 0.02


def strike(side: Side, cell: Cell, number: int) -> float | None:
    """The failure of this number; when it struck, seconds since 1970."""
    if cell.failure is Failure.TASK:
        return _task(side, number)
    if cell.failure is Failure.QUERY:
        return _query(side)
    first, count = (0, AT_ONCE) if cell.pattern is Pattern.TOGETHER else (number, 1)
    kill = _kill_workers if side.native else _kill_replicas
    return _soon(side, lambda: kill(side, first, count))


def _soon(side: Side, attempt: Callable[[], float | None], look_s: float = _LOOK_S) -> float | None:
    """What the attempt gives, as soon as it gives something."""
    end = time.time() + PATIENCE_S
    while (found := attempt()) is None and time.time() < end:
        side.keep()
        time.sleep(look_s)
    return found


def _kill_replicas(side: Side, first: int, count: int) -> float | None:
    try:
        query = find(str(side.checkpoint))
        order = targets(query.nodes, None, None)
        with ExitStack() as stack:
            victims = [order[at % len(order)] for at in range(first, first + count)]
            held = [stack.enter_context(hold(query, victim)) for victim in victims]
            moment = time.time()
            for one in held:
                with suppress(ProcessLookupError):
                    one.send(signal.SIGKILL)
            return moment
    except (NoProcess, NotRunning):
        return None


def _kill_workers(side: Side, first: int, count: int) -> float | None:
    order = workers(side.workers)
    if len(order) < count:
        return None
    moment = time.time()
    for at in range(first, first + count):
        with suppress(ProcessLookupError):
            os.kill(order[at % len(order)], signal.SIGKILL)
    return moment


def workers(folder: Path) -> list[int]:
    """Processes of the native side that are at work, those with the user's function first."""
    if not folder.exists():
        return []
    notes = sorted(tuple(path.name.split("-")) for path in folder.iterdir())
    return [int(pid) for _, pid in notes if alive(int(pid))]


def _task(side: Side, number: int) -> float | None:
    side.marks.mkdir(parents=True, exist_ok=True)
    (side.marks / str(number)).touch()

    def fired() -> float | None:
        texts = [path.read_text() for path in side.marks.glob(f"{number}-*")]
        return float(texts[0]) if texts and texts[0] else None

    return _soon(side, fired)


def _query(side: Side) -> float | None:
    """Cancelled until it is another run: the first try may have fallen between two jobs."""
    before, moment = side.runs, time.time()

    def over() -> float | None:
        side.cancel()
        side.keep()
        return moment if side.runs != before else None

    return _soon(side, over, _CANCEL_S)
