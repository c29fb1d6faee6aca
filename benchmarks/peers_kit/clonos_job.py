"""The ledger as a causal job, in either mode; on the line "kill" it kills a replica and says when.

python -m peers_kit.clonos_job LOG FOLDER MODE
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

from chains import session

import clonos
from clonos.testing.ledger import LEDGER_SCHEMA, ledger_of

TRIGGERS = {"microbatch": {"processingTime": "0 seconds"}, "realtime": {"realTime": "5 minutes"}}
INSTANCES = 2
OPERATOR_NODE = 2


def start(spark: Any, log: str, folder: str, mode: str) -> Any:
    from pyspark.sql import functions as f

    raw = spark.readStream.format("clonos").load(log)
    parsed = raw.select(f.from_json(f.col("value").cast("string"), "k string, id string").alias("j"))
    return (
        clonos.causal(parsed.select("j.*"))
        .groupBy("k")
        .process(ledger_of("id"), LEDGER_SCHEMA, name="ledger", parallelism=INSTANCES)
        .writeStream.to(clonos.sinks.sql(f"sqlite:///{folder}/out.db", "out"))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(**TRIGGERS[mode])
        .start()
    )


def main() -> None:
    log, folder, mode = sys.argv[1:]
    spark = session()
    query = start(spark, log, folder, mode)
    for line in sys.stdin:
        if line.strip() == "kill":
            victims = [r["pid"] for r in query.replicas() if r["node"] == OPERATOR_NODE and not r["standby"]]
            at = time.time()
            os.kill(random.choice(victims), signal.SIGKILL)
            print(at, flush=True)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
