"""Is every payment decided once? `python examples/kafka/audit.py [SERVERS]` reads both topics to their ends, and says.

A card's payments lie in one partition, so its n-th decision must be that of its n-th payment. A decision that is there
twice, or is missing below a later one, is a row that a failure has repeated or lost.
"""

import collections
import json
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "kafka:19092"
PATIENCE_S = 30.0


def messages(topic: str):
    """All that is committed in the topic now, as pairs of key and value."""
    settings = {"bootstrap.servers": SERVERS, "group.id": "audit", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    try:
        found = consumer.list_topics(timeout=PATIENCE_S).topics.get(topic)
        if found is None:
            raise SystemExit(f"there is no topic {topic} at {SERVERS} yet")
        consumer.assign([TopicPartition(topic, number, 0) for number in found.partitions])
        ended: set[int] = set()
        while len(ended) < len(found.partitions):
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise SystemExit(f"{SERVERS} does not answer")
            if message.error() is None:
                if message.partition() not in ended:
                    yield message.key(), message.value()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            elif not message.error().retriable():
                raise SystemExit(f"{topic} cannot be read: {message.error()}")
    except KafkaException as error:
        raise SystemExit(f"{SERVERS} does not answer: {error}") from None
    finally:
        consumer.close()


decided: dict[bytes | None, list[tuple[int, int | None]]] = collections.defaultdict(list)
for card, value in messages("decisions"):
    row = json.loads(value)
    decided[card].append((row["n"], row["amount"]))
paid: dict[bytes | None, list[int | None]] = collections.defaultdict(list)
for card, value in messages("payments"):
    paid[card].append(int(value) if value and value.isdigit() else None)  # as the query takes it

wrong = [card for card, rows in decided.items() if rows != list(enumerate(paid[card][: len(rows)], start=1))]
count = sum(map(len, decided.values()))
print(
    f"{count} of {sum(map(len, paid.values()))} payments are decided, {len(wrong)} of {len(paid)} cards not exactly"
)
sys.exit(1 if wrong else 0)
