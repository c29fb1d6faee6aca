"""Actions on the outside (`ctx.effect`) of operators that have standbys: a standby that takes over knows of them.

The query writes its log lines as JSON, so that those of a real death are looked at, too.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_job import Run, assert_exact, await_end, await_quarter, first, running
from modes import MODES
from test_standby import STANDBYS, until_promoted

pytestmark = pytest.mark.spark


@dataclass
class Tells:
    """Every third record tells the outside what was drawn for it; a process that is asked to dies behind that."""

    folder: str

    def __call__(self, key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        for out in first(key, row, ctx):
            if int(row.id) % 3 == 0:
                ctx.effect(self.tell, row.id, out[3], key=row.id)
            yield out

    def tell(self, id: str, draw: int) -> None:
        with open(os.path.join(self.folder, "told"), "a", encoding="utf-8") as told:
            told.write(f"{id} {draw}\n")
        if self.asked(os.getpid()).exists():
            os.kill(os.getpid(), signal.SIGKILL)

    def asked(self, pid: int) -> Path:
        return Path(self.folder, f"die-{pid}")

    @property
    def told(self) -> list[tuple[str, int]]:
        """In the order in which it was told."""
        lines = [line.split() for line in Path(self.folder, "told").read_text().splitlines()]
        return [(id, int(draw)) for id, draw in lines]


@pytest.fixture
def drivers_logger() -> Iterator[None]:
    logger = logging.getLogger("clonos")
    before = logger.handlers[:], logger.propagate
    yield
    logger.handlers[:], logger.propagate = before


def events(folder: Path) -> list[dict[str, Any]]:
    """What servers and replicas have written."""
    written = "".join(path.read_text() for path in folder.rglob("*.err"))
    return [json.loads(line) for line in written.splitlines() if line.startswith("{")]


@pytest.mark.usefixtures("drivers_logger")
@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=[pytest.mark.soak] if mode == "microbatch" else []) for mode in MODES]
)
def test_a_primary_dies_behind_an_effect(spark: Any, tmp_path: Path, mode: str) -> None:
    tells = Tells(str(tmp_path))
    settings = {**STANDBYS, "log.format": "json"}
    setup = Run(
        tmp_path, mode=mode, count=900, feed_seconds=2.0, goes_on=True, settings=settings, first=tells
    )

    def ask(primary: dict[str, Any], standby: dict[str, Any]) -> None:
        tells.asked(primary["pid"]).touch()

    with running(spark, setup) as query:
        await_quarter(query, setup)
        until_promoted(query, setup, ask, instances=((2, 0), (2, 1)))
        await_end(query, setup)
    assert_exact(setup)
    assert query.restarts == []
    draws = dict(setup.rows("id, a_draw"))
    told = defaultdict(list)
    for id, draw in tells.told:
        told[id].append(draw)
    assert {id for id in draws if int(id) % 3 == 0} == set(told)
    assert all(set(said) == {draws[id]} for id, said in told.items()), "the outside was told otherwise"
    again = [id for id, said in told.items() if len(said) > 1]
    assert 1 <= len(again) <= len([death for death in setup.deaths() if death["signal"] == "SIGKILL"])
    said = events(tmp_path)
    assert len({one["query"] for one in said}) == 1
    assert {"replica_died", "recovered"} <= {one["event"] for one in said if one.get("operator") == "first"}
