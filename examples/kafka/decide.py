"""The first example of README.md: it reads the topic `payments`, and writes the topic `decisions`."""

from pyspark.sql import SparkSession

import clonos

KAFKA = "kafka:19092"


def decide(key, row, ctx):
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    yield key[0], ctx.state["seen"], row.amount, ctx.random.random() < 0.5, ctx.now()


spark = clonos.configure(SparkSession.builder, kafka=True).getOrCreate()
source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", KAFKA)
payments = source.options(subscribe="payments", startingOffsets="earliest").load()
payments = payments.selectExpr("string(key) AS card", "try_cast(string(value) AS int) AS amount")
decisions = clonos.causal(payments).groupBy("card")
columns = "card string, n int, amount int, ok boolean, at timestamp"
decisions = decisions.process(decide, columns, name="decide")
writer = decisions.writeStream.to(clonos.sinks.kafka(KAFKA, topic="decisions", key="card"))
query = writer.option("checkpointLocation", "/shared/first").trigger(realTime="1 minute").start()
query.awaitTermination()
