"""Spark's metrics system knows what conduits do: seen through one of its sinks."""

from __future__ import annotations

from pathlib import Path

import pytest
from modes import mostly
from streams import Place

from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = pytest.mark.spark

ROWS = 3_000


def shown(metrics: Path, operator: str) -> dict[str, int]:
    """What was written last of the conduits of an operator."""
    files = metrics.glob(f"*.clonos.conduit.{operator}.*.csv")
    written = {file.name.split(".")[-2]: file.read_text().splitlines() for file in files}
    counts = {name: lines[-1].split(",")[1] for name, lines in written.items() if lines}
    return {name: int(count) for name, count in counts.items() if count.isdecimal()}


@pytest.mark.parametrize("mode", mostly("microbatch"))
def test_what_conduits_do_is_counted(place: Place, metrics: Path, mode: str) -> None:
    kept = place.causal("n long").map(lambda row, ctx: (row.n,), "n long", name=f"maps: {mode}")
    place.write({"n": n} for n in range(ROWS))
    fault = Fault(point=Point.INPUT, strike=Strike.REPLICA, operator=f"maps: {mode}", instance=0, after=100)
    place.start(kept, mode, **{"clonos.faults": script(fault)})
    place.await_rows(ROWS)
    place.write({"n": n} for n in range(ROWS))
    place.await_rows(2 * ROWS)
    place.stop()
    counted: dict[str, int] = {}

    def settled() -> bool:
        """Awaited as a whole: a sink writes one metric after the other, so that some are of the second before."""
        counted.update(shown(metrics, f"maps__{mode}"))
        # Exactly so many where no more than the one replica was lost, which a slow machine does not promise.
        least = {"records": 2 * ROWS, "outputRecords": 2 * ROWS, "bundles": 2, "replacements": 1}
        rest = {"waitingRecords": 0, "inflightBytes": 0, "spilledBytes": 0}
        return rest.items() <= counted.items() and all(counted.get(of, 0) >= n for of, n in least.items())

    place.until(settled, counted)
    assert counted["bundles"] <= counted["records"]
