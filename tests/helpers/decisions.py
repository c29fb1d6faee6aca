"""Functions whose calls are recorded, exported, and tried again, some of them with another rule."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from typing import Any

LIMIT = float(os.environ.get("DECISIONS_LIMIT", "0.5"))
RULE = os.environ.get("DECISIONS_RULE", "")


class Declined(Exception):
    """Of the service."""


def ask(n: int) -> str:
    """Never says the same again, and sometimes nothing."""
    if n % 5 == 4:
        raise Declined(n)
    return uuid.uuid4().hex


def decide(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """With all that a function can ask for."""
    turn = ctx.state["turn"] = ctx.state.get("turn", 0) + 1
    drawn = ctx.random.random()
    ctx.state.setdefault("drawn", []).append(drawn)
    if turn % 3 == 1:
        ctx.timer(at=ctx.now_us() + 3_600_000_000, name="late")
    try:
        told = ctx.call(ask, row.n)
    except Declined as error:
        told = f"declined {error}"
    paid = ctx.effect(ask, 5 * turn, key=f"{key[0]}-{turn}")
    if drawn > LIMIT:
        ctx.side_output("large", (row.k, drawn))
    yield row.k, row.n, turn, drawn, ctx.now_us(), told, paid


def late(key: Any, timer: Any, ctx: Any) -> None:
    ctx.state["late"] = True


def scale(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.k, row.n, int(LIMIT * 100 * row.n)


def left(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["left"] = ctx.state.get("left", 0) + row.n
    yield key[0], "left", ctx.state["left"]


def right(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield key[0], "right", ctx.state.get("left", 0) + row.scaled


def unmodified(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Knows nothing of ctx."""
    yield row.k, time.time(), uuid.uuid4().hex


def pay(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """One payment, one timer that is set and cancelled, one draw, one reading, and a set; by `RULE` otherwise."""
    if RULE == "exit":
        raise SystemExit(0)
    amount = row.n * 100 if RULE == "amount" else row.n
    ctx.effect(take if RULE == "another effect" else send, amount, key=f"p-{row.n}")
    if RULE == "twice":
        ctx.effect(send, amount, key=f"again-{row.n}")
    due = ctx.now_us() + 3_600_000_000
    if RULE == "order":
        ctx.cancel_timer(due, name="late")
    ctx.timer(at=due, name="late")
    if RULE != "order":
        ctx.cancel_timer(due, name="late")
    if RULE == "default":
        with contextlib.suppress(Exception):
            ctx.call(take, amount)
    drawn = 0.25 if RULE == "no draw" else ctx.random.random()
    if RULE == "more draws":
        ctx.random.random()
    paid = ctx.state.setdefault("paid", set())
    paid |= {f"p{row.n}", row.n}
    told = ctx.call(lambda: 1 if str(row.n) in {"aa", "bb"} else max([row.n], key=lambda n: -n))
    yield row.k, row.n, ",".join({"a", "b", "cc", f"d{row.n}"}) + f"{told}"
    if RULE == "once more":
        yield row.k, row.n, ""
    assert drawn >= 0


def send(amount: int) -> str:
    return uuid.uuid4().hex


def take(amount: int) -> str:
    return send(-amount)


SEEN: set[str] = set()


def first(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """Depends on what is hidden in its module."""
    yield row.k, row.n, "seen" if row.k in SEEN else "first"
    SEEN.add(row.k)
