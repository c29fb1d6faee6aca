"""The first example of README.md on hot standbys of the executors, with a table in PostgreSQL beside the topic.

`python examples/kafka/decide_on_standbys.py [SERVERS CHECKPOINT TABLE]`: Kafka's bootstrap servers, where the
checkpoint is, and the URL of the database (docs/containers.md).
"""

import sys

from pyspark.sql import SparkSession

import clonos

GIVEN = sys.argv[1:]
KAFKA, CHECKPOINT, TABLE = GIVEN or (
    "kafka:19092",
    "/shared/standbys",
    "postgresql://clonos:clonos@postgres/clonos",
)


def decide(key, row, ctx):
    ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    yield key[0], ctx.state["seen"], row.amount, ctx.random.random() < 0.5, ctx.now()


builder = clonos.configure(SparkSession.builder, kafka=True)
builder = builder.config("spark.clonos.replica.servers", "executors").config("spark.clonos.standby", "hot")
spark = builder.getOrCreate()
source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", KAFKA)
payments = source.options(subscribe="payments", startingOffsets="earliest").load()
payments = payments.selectExpr("string(key) AS card", "try_cast(string(value) AS int) AS amount")
decisions = clonos.causal(payments).groupBy("card")
columns = "card string, n int, amount int, ok boolean, at timestamp"
decisions = decisions.process(decide, columns, name="decide")
topic = clonos.sinks.kafka(KAFKA, topic="decisions", key="card")
writer = decisions.writeStream.to(topic, name="topic")
writer = writer.to(clonos.sinks.sql(TABLE, "decisions"), name="table", stream=decisions)
query = writer.option("checkpointLocation", CHECKPOINT).trigger(realTime="1 minute").start()
query.awaitTermination()
