"""Async functions: two ledgers in a row whose draws are the answers of calls, while their replicas are killed."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from modes import mostly
from streams import TRIGGERS, Place

import clonos
from clonos.testing.ledger import LEDGER_SCHEMA, extend, judge, micros

pytestmark = pytest.mark.spark
COLUMNS = [column.split()[0] for column in LEDGER_SCHEMA.split(", ")]
PER_STEP = 20
WAITS = PER_STEP  # the record whose call does not end before the test lets it


class Outside:
    """A service that never answers twice alike, and keeps what it was asked."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def note(self, what: str) -> None:
        with open(self.base / "asked", "a") as asked:
            asked.write(f"{what}\n")

    async def ask(self, record: str) -> int:
        self.note(record)
        await asyncio.sleep(secrets.randbelow(5) / 1000)  # which of several ends first is up to chance
        while record == str(WAITS) and not (self.base / "go").exists():
            await asyncio.sleep(0.01)
        return secrets.randbits(40)

    def refuse(self, record: str) -> None:
        raise ConnectionError(f"{record} refused {secrets.randbits(40)}")

    def asked(self) -> Counter[str]:
        path = self.base / "asked"
        return Counter(path.read_text().split() if path.exists() else [])


def ledger_of(outside: Outside) -> Any:
    async def keep(key: Any, row: Any, ctx: Any) -> AsyncIterator[tuple[Any, ...]]:
        answer, refused = await ctx.gather(
            ctx.call(outside.ask, row.id), ctx.call(outside.refuse, row.id), return_exceptions=True
        )
        draw = ctx.random.getrandbits(20) + answer
        yield extend(ctx.state, key[0], row.id, draw, micros(ctx.now())).row()
        ctx.state["refused"] = str(refused)

    return keep


def entries(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in rows]


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_ledgers_of_answers_are_exact(place: Place, mode: str) -> None:
    outside = Outside(place.base)
    source = place.causal("n long").selectExpr("cast(n as string) AS id", "concat('k', n % 7) AS k")
    first = source.groupBy("k").process(ledger_of(outside), LEDGER_SCHEMA, name="first", parallelism=2)
    by_draw = first.selectExpr("concat('b', draw % 5) AS bucket", "hash AS id")
    second = by_draw.groupBy("bucket").process(
        ledger_of(outside), LEDGER_SCHEMA, name="second", parallelism=2, standby="hot"
    )
    other = Place(place.spark, place.base / "second")
    place.query = (
        first.writeStream.to(clonos.sinks.jsonl(place.output, durable=False), name="shown")
        .to(clonos.sinks.jsonl(other.output, durable=False), name="other", stream=second)
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(**TRIGGERS[mode])
        .start()
    )
    for step, struck in enumerate([(3, 0), None, (2, 1), (3, 1)]):
        due = PER_STEP * (step + 1)
        place.write([{"n": n} for n in range(due - PER_STEP, due)])
        if struck is None:  # while calls are under way
            place.until(lambda: outside.asked()[str(WAITS)] > 0, "the call that waits")
            for instance in range(2):
                place.kill(2, instance)
            place.until(lambda: outside.asked()[str(WAITS)] > 1, "the call that waits, again")
            (place.base / "go").touch()
        place.until(lambda: len(place.rows()) >= due and len(other.rows()) >= due, step)  # noqa: B023
        if struck is not None:
            place.kill(*struck)
    place.write([{"n": PER_STEP * 4}])
    rows = place.await_rows(PER_STEP * 4 + 1)
    verdict = judge(entries(rows), [str(n) for n in range(PER_STEP * 4 + 1)])
    assert verdict.exact, verdict
    verdict = judge(entries(other.await_rows(len(rows))), [row["hash"] for row in rows])
    assert verdict.exact, verdict
