"""A nondeterministic operator that recovers exactly, without a broker: `python examples/quickstart.py`.

Kill any process of it while it runs (`pgrep -f clonos_standby.server.replica_server` finds some), and start it again
over the same folders: no payment is lost, shown twice, or shown with another outcome.
"""

from pyspark.sql import SparkSession

import clonos
from clonos.sources import LogWriter

with LogWriter("first/in", partitions=2) as log:
    for n in range(100):
        log.append(n % 2, b"card%d" % (n % 5))


def decide(key, row, ctx):
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    yield key[0], ctx.state["seen"], ctx.random.random() < 0.5, ctx.now()


spark = clonos.configure(SparkSession.builder).master("local[8]").getOrCreate()
cards = spark.readStream.format("clonos").load("first/in").selectExpr("string(value) AS card")
decisions = clonos.causal(cards).groupBy("card")
decisions = decisions.process(decide, "card string, n int, ok boolean, at timestamp", name="decide")
writer = decisions.writeStream.to(clonos.sinks.jsonl("first/out"))
query = writer.option("checkpointLocation", "first/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
spark.read.json("first/out").orderBy("card", "n").show()
