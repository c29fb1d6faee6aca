"""What `select` and `where` behind an operator cost per row, beside the same in a function: CPU time of this thread.

    python benchmarks/expressions.py [--rows 1000] [--rounds 200]

Each case runs bundles of `--rows` rows through a `map` that hands them on, with an expression behind it, and through a
`map` that does the same in Python. Both sides are interleaved; printed are medians, with quartiles, of microseconds per
row beyond the `map` that hands on. What a further operator would cost beside that, an exchange and a process, is in
`hop_cost.py`. Spark is needed for the analysis of the expressions alone.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "standby"))
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from surface_services import FakeServices, opened  # noqa: E402

from clonos.operators.process import FlatMapOperator, MapOperator  # noqa: E402
from clonos.operators.types import arrow_schema  # noqa: E402
from clonos.spark.derivation import derived  # noqa: E402
from clonos.spark.derived_outputs import DerivedOf  # noqa: E402
from clonos.spark.plan import Binding, OperatorPlan  # noqa: E402

COLUMNS = "id long, amount double, name string, price decimal(12,2), at timestamp"
CASES: dict[str, tuple[Callable[[Any], Any], str, Callable[[Any], Any]]] = {
    "select two columns": (
        lambda df: df.select("id", "name"),
        "id long, name string",
        lambda row: [(row[0], row[2])],
    ),
    "where amount > 50": (
        lambda df: df.where("amount > 50"),
        COLUMNS,
        lambda row: [row] if row[1] is not None and row[1] > 50 else [],
    ),
    "where, then select of five": (
        lambda df: df.where("id % 2 = 0").selectExpr(
            "id + 1 AS a", "amount * 2 AS b", "upper(name) AS c", "coalesce(name, '-') AS d", "id AS e"
        ),
        "a long, b double, c string, d string, e long",
        lambda row: (
            [(row[0] + 1, row[1] * 2, row[2].upper(), row[2] or "-", row[0])] if row[0] % 2 == 0 else []
        ),
    ),
    "a decimal and a text more": (
        lambda df: df.withColumn("half", df.price / 2).withColumn("said", df.id.cast("string")),
        COLUMNS + ", half decimal(18,7), said string",
        lambda row: [(*row, row[3] / 2, str(row[0]))],
    ),
}


def rows_of(count: int) -> list[tuple[Any, ...]]:
    begin = dt.datetime(2026, 1, 1)
    return [
        (at, at % 100 + 0.5, f"card{at % 7}", Decimal(at).scaleb(-2), begin + dt.timedelta(seconds=at))
        for at in range(count)
    ]


def sides(spark: Any, own: Any, output: str, function: Any) -> dict[str, Any]:
    """Operators by name: one that hands on, one with the expression behind it, one that does it in Python."""
    schema = spark.createDataFrame([], COLUMNS).schema

    def handing_on() -> Any:
        return MapOperator(lambda row: row, arrow_schema(COLUMNS), name="op", pure=True)

    node = OperatorPlan((), schema, (), lambda given, name: handing_on, schema, Binding("op"), None)
    plan = derived(spark, node, own).upstream
    made = DerivedOf(node, "op", [plan]).around(handing_on)
    in_python = FlatMapOperator(function, arrow_schema(output), name="op", pure=True)
    return {"on": handing_on(), "expression": made(), "function": in_python}


def measure(operators: dict[str, Any], rows: list[tuple[Any, ...]], rounds: int) -> dict[str, list[float]]:
    keys: list[tuple[Any, ...]] = [()] * len(rows)
    for operator in operators.values():
        opened(operator, FakeServices())
    found: dict[str, list[float]] = {name: [] for name in operators}
    for _ in range(rounds):
        for name, operator in operators.items():
            begin = time.thread_time_ns()
            operator.bundle(keys, rows)
            found[name].append((time.thread_time_ns() - begin) / 1000 / len(rows))
    return found


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    rows = rows_of(given.rows)
    for name, case in CASES.items():
        found = measure(sides(spark, *case), rows, given.rounds)
        base = statistics.median(found["on"])
        said = [
            f"{side} {statistics.median(found[side]) - base:.2f} us "
            f"[{quartiles[0] - base:.2f} .. {quartiles[2] - base:.2f}]"
            for side in ("expression", "function")
            if (quartiles := statistics.quantiles(found[side], n=4))
        ]
        sys.stdout.write(f"{name:28} {'   '.join(said)}\n")


if __name__ == "__main__":
    main()
