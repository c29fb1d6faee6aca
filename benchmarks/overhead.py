"""Throughput of the whole causal job: recorded, without recording, with standbys, and as stock Spark has it; same
session, interleaved.

Every round drains the same log of records once per side, from the start of the query's first batch to the end of its
last, in micro-batches of a fixed size. Spark, servers and replicas are up before the clock starts: the first batch of
each run is not counted.

    python benchmarks/overhead.py [--records 120000] [--rounds 5] [--sides recorded,unrecorded,passive,hot,native]
"""

from __future__ import annotations

import argparse
import datetime as dt
import shutil
import statistics
import tempfile
from typing import Any

from chains import causal_query, native_query, record, session

from clonos.sources.log_writer import LogWriter

BATCHES = 6
SIDES = ("recorded", "unrecorded", "passive", "hot", "native")


def drain(spark: Any, side: str, log: str, folder: str, records: int) -> float:
    """Records per second over all batches but the first."""
    standby = side if side in ("passive", "hot") else None
    spark.conf.set("spark.clonos.recording", "false" if side == "unrecorded" else "true")
    spark.conf.set("spark.clonos.standby", standby or "none")
    build = native_query if side == "native" else causal_query
    query = build(spark, log, folder, {"availableNow": True}, maxRecordsPerBatch=records // BATCHES)
    query.awaitTermination()
    counted = [p for p in query.recentProgress if p["numInputRows"]][1:]
    if not counted:
        raise RuntimeError(f"{side} ran in one batch only")
    seconds: float = sum(p["durationMs"]["triggerExecution"] for p in counted) / 1000
    shutil.rmtree(folder, ignore_errors=True)
    return float(sum(int(p["numInputRows"]) for p in counted) / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=120_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="recorded,unrecorded", help=f"of {', '.join(SIDES)}")
    options = parser.parse_args()
    sides = options.sides.split(",")
    if set(sides) - set(SIDES):
        parser.error(f"--sides takes {', '.join(SIDES)}")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as base:
        with LogWriter(f"{base}/in", 2) as writer:
            for partition in (0, 1):
                writer.append_many(partition, [record(i) for i in range(partition, options.records, 2)])
        spark = session(4)
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(options.rounds + 1):
            for side in sides if number % 2 else reversed(sides):
                rate = drain(spark, side, f"{base}/in", f"{base}/{side}-{number}", options.records)
                if number:  # the first round warms up
                    rates[side].append(rate)
                print(
                    f"{dt.datetime.now():%H:%M:%S} round {number} {side:>10} {rate:>10,.0f} records/s",
                    flush=True,
                )
        report(rates)
        spark.stop()


def report(rates: dict[str, list[float]]) -> None:
    print(f"\n{'side':>10} {'median records/s':>18} {'min .. max':>22}")
    for side, values in rates.items():
        print(f"{side:>10} {statistics.median(values):>18,.0f} {min(values):>10,.0f} .. {max(values):,.0f}")
    for base in [side for side in ("unrecorded", "native") if side in rates]:
        for side in [side for side in rates if side not in (base, "native")]:
            ratios = sorted(a / b for a, b in zip(rates[side], rates[base], strict=True))
            print(
                f"{side} / {base}: median {statistics.median(ratios):.3f} [{ratios[0]:.3f} .. {ratios[-1]:.3f}]"
            )


if __name__ == "__main__":
    main()
