"""How long rows stop at the end of an epoch of Real-Time Mode, and in which part of it.

The job of `latency.py`, at a steady rate, with short epochs. Each row holds when its operators had it, and Spark's
checkpoint says when an epoch was committed:

- *end*: from the last row of an epoch at the first operator to the commit: tasks drain, replicas end the epoch with a
  snapshot, sinks commit, Spark ends its tasks and writes offsets and commit;
- *begin*: from there to the first row at the first operator: Spark plans the next epoch and launches its tasks,
  conduits connect, the source goes on.

Beside it stands what Spark says of its own part: planning, and how long `addBatch`, which runs the epoch, goes beyond
the epoch's length.

    python benchmarks/epoch_end.py [--rate 200] [--epoch 10] [--epochs 8]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from chains import causal_query, session
from latency import WARM_UP, Feeder, follow

from clonos.sources.log_writer import LogWriter

Row = tuple[float, ...]
"""When the first operator had it, when the second, and when it was visible; in seconds."""


def written(folder: Path) -> list[float]:
    """When Spark wrote the files of the epochs, in order."""
    return sorted(path.stat().st_mtime for path in folder.glob("[0-9]*"))


def pause(times: list[float], commit: float, within: float) -> tuple[float, float]:
    """Between which two rows nothing came for longest, around a commit."""
    near = [at for at in times if abs(at - commit) < within]
    return max(pairwise(near), key=lambda pair: pair[1] - pair[0])


def parts(rows: Sequence[Row], checkpoint: Path, since: float, within: float) -> list[dict[str, float]]:
    """Of every end of an epoch, in milliseconds."""
    columns = [sorted(column) for column in zip(*rows, strict=True)]
    found = []
    for commit in written(checkpoint / "commits"):
        if commit < since or columns[-1][-1] < commit + within:
            continue
        last, first = pause(columns[0], commit, within)
        seconds = {"end": commit - last, "begin": first - commit}
        for name, column in zip(("first operator", "second operator", "sink"), columns, strict=True):
            before, after = pause(column, commit, within)
            seconds[name] = after - before
        found.append({name: 1000 * value for name, value in seconds.items()})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--epoch", type=int, default=10, help="seconds")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        folder, log = Path(base, "job"), f"{base}/in"
        LogWriter(log, 2).close()
        query = causal_query(spark, log, str(folder), {"realTime": f"{options.epoch} seconds"})
        feeder = Feeder(log, options.rate)
        started = time.time()
        feeder.start()
        try:
            seconds = WARM_UP + options.epoch * (options.epochs + 1)
            seen = follow(folder / "out.db", "at, at2", seconds)
            rows = [(at / 1e6, at2 / 1e6, now) for now, (at, at2) in seen]
            ends = parts(rows, folder / "checkpoint", started + WARM_UP, options.epoch / 3)
            durations = [dict(each.durationMs) for each in query.recentProgress[-options.epochs :]]
            for each in durations:
                each["addBatch beyond the epoch"] = each["addBatch"] - 1000 * options.epoch
        finally:
            feeder.done.set()
            feeder.join()
            query.stop()
    spark.stop()
    print(f"ms at {len(ends)} ends of epochs: median [lowest .. highest]")
    for name in ends[0]:
        values = [each[name] for each in ends]
        label = name if name in ("end", "begin") else f"silence at the {name}"
        print(f"{label:>30} {statistics.median(values):>7.0f} [{min(values):.0f} .. {max(values):.0f}]")
    for name in sorted(set().union(*durations)):
        values = [each[name] for each in durations if name in each]
        print(
            f"{f'Spark: {name}':>30} {statistics.median(values):>7.0f} [{min(values):.0f} .. {max(values):.0f}]"
        )


if __name__ == "__main__":
    main()
