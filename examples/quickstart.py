"""A nondeterministic operator that recovers exactly: `python examples/quickstart.py`.

Every payment is approved or not by a random number, and stamped with the clock. Kill any process of it while
it runs (`pgrep -f clonos_standby.server.replica_server` finds some) and start it again: no payment is lost, shown
twice, or shown with another outcome.
"""

import sqlite3
import threading
import time

from pyspark.sql import SparkSession

import clonos
from clonos.sources import LogWriter

FOLDER = "/tmp/clonos-quickstart"


def approve(key, payment, ctx):
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    yield key[0], ctx.state["seen"], payment.amount, ctx.random.random() < 0.9, ctx.now()


def pay() -> None:
    with LogWriter(f"{FOLDER}/payments", partitions=2) as log:
        for i in range(1000):
            log.append(i % 2, b"card-%d,%d" % (i % 5, i))
            time.sleep(0.01)


threading.Thread(target=pay, daemon=True).start()
time.sleep(0.5)
spark = clonos.configure(SparkSession.builder).master("local[8]").getOrCreate()
payments = (
    spark.readStream.format("clonos")
    .load(f"{FOLDER}/payments")
    .selectExpr("split(string(value), ',')[0] AS card", "int(split(string(value), ',')[1]) AS amount")
)
query = (
    clonos.causal(payments)
    .groupBy("card")
    .process(approve, "card string, n int, amount int, ok boolean, at timestamp", name="approve")
    .writeStream.to(clonos.sinks.sql(f"sqlite:///{FOLDER}/out.db", "payments"))
    .option("checkpointLocation", f"{FOLDER}/checkpoint")
    .trigger(realTime="10 seconds")
    .start()
)
query.awaitTermination(20)
query.stop()
print(sqlite3.connect(f"{FOLDER}/out.db").execute("SELECT count(*), sum(ok) FROM payments").fetchone())
