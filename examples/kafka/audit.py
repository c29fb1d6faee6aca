"""Is every payment decided once? `python examples/kafka/audit.py [SERVERS]` reads both topics to their ends, and says.

A card's payments lie in one partition, so its n-th decision must be that of its n-th payment. A decision that is there
twice, or is missing below a later one, is a row that a failure has repeated or lost.
"""

import collections
import json
import sys

from confluent_kafka import Consumer, TopicPartition

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
        numbers = found.partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        ended: set[int] = set()
        while len(ended) < len(numbers):
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise SystemExit(f"{SERVERS} does not answer")
            if message.error():  # the end of a partition
                ended.add(message.partition())
            elif message.partition() not in ended:
                yield message.key().decode(), message.value()
    finally:
        consumer.close()


decided: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
for card, value in messages("decisions"):
    row = json.loads(value)
    decided[card].append((row["n"], row["amount"]))
paid: dict[str, list[int]] = collections.defaultdict(list)
for card, value in messages("payments"):
    paid[card].append(int(value))

wrong = [card for card, rows in decided.items() if rows != list(enumerate(paid[card][: len(rows)], start=1))]
count = sum(map(len, decided.values()))
print(
    f"{count} of {sum(map(len, paid.values()))} payments are decided, {len(wrong)} of {len(paid)} cards not exactly"
)
sys.exit(1 if wrong else 0)
