"""How long calls and effects took, and which process has carried them out, is part of what is explained."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from modes import mostly
from streams import Place

from clonos import cli

pytestmark = pytest.mark.spark

SAID = "k string, n long, said string"
AT_LEAST_S = 0.05


def slow(n: int) -> str:
    time.sleep(AT_LEAST_S)
    return f"answer {n} of {os.getpid()}"


def fails(n: int) -> str:
    time.sleep(AT_LEAST_S)
    raise ValueError(f"not {n}")


def waits(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    told = ctx.call(slow, row.n)
    try:
        ctx.call(fails, row.n)
    except ValueError as error:
        told += f", {error}"
    yield row.k, row.n, told + ", " + ctx.effect(slow, row.n, key=f"e-{row.k}-{row.n}")


async def waits_for_many(key: Any, row: Any, ctx: Any) -> AsyncIterator[tuple[Any, ...]]:
    told = await ctx.gather(ctx.call(slow, row.n), ctx.call(slow, row.n + 1))
    yield row.k, row.n, ", ".join(told)


@pytest.mark.parametrize("mode", mostly("realtime"))
@pytest.mark.parametrize(
    ("function", "kinds"),
    [(waits, ["call", "call", "effect"]), (waits_for_many, ["answer", "answer"])],
    ids=["one after the other", "at the same time"],
)
def test_it_is_explained_how_long_each_took(
    place: Place, capsys: pytest.CaptureFixture[str], mode: str, function: Any, kinds: list[str]
) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.start(place.causal("k string, n long").groupBy("k").process(function, SAID, name="waits"), mode)
    for first in (0, 3):
        place.write({"k": f"k{n}", "n": n} for n in range(first, first + 3))
        place.await_rows(first + 3)
        place.kill(2, 0)
    place.finish()
    for row in place.rows():
        assert cli.main(["explain", str(place.checkpoint), row["clonos_id"], "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        timed = [one for one in said["asked"] if "took_us" in one]
        # Of the call, whose answers come as they come
        records = 1 if function is waits else len(said["inputs"])
        assert [one["kind"] for one in timed] == kinds * records
        assert all(one["took_us"] >= AT_LEAST_S * 1e6 for one in timed), timed
        who = {process["did"]: f" of {process['pid']}" for process in said["processes"]}
        assert who and all((pid in row["said"]) == (did == "ran") for did, pid in who.items()), (who, row)
        assert {one["host"] for one in said["processes"]} == {socket.gethostname()}
        assert cli.main(["explain", str(place.checkpoint), row["clonos_id"]]) == 0
        text = capsys.readouterr().out
        assert sum(line.endswith((" ms)", " s)")) for line in text.splitlines()) == len(timed), text
