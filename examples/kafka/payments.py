"""Payments for a topic: `python examples/kafka/payments.py [SERVERS]`, ten a second, until it is interrupted.

It makes the topics `payments` and `decisions` where they are not there. A payment has a card as its key, and
an amount as its value.
"""

import itertools
import random
import sys
import time

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "kafka:19092"
PARTITIONS = 2
AWAY = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def make_topics(*names: str) -> None:
    """Waits for the broker as long as it takes."""
    admin = AdminClient({"bootstrap.servers": SERVERS})
    left = set(names)
    while left:
        made = admin.create_topics([NewTopic(name, PARTITIONS) for name in left], operation_timeout=30)
        for name, future in made.items():
            try:
                future.result()
                left.discard(name)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    left.discard(name)
                elif code not in AWAY:
                    raise SystemExit(f"the topic {name} cannot be made at {SERVERS}: {error}") from None
                else:
                    print(f"{SERVERS} does not answer yet", flush=True)


make_topics("payments", "decisions")
producer = Producer({"bootstrap.servers": SERVERS, "enable.idempotence": True})
for number in itertools.count():
    card, amount = f"card-{random.randrange(20)}", random.randrange(1, 500)
    producer.produce("payments", key=card, value=str(amount), on_delivery=lambda *_: None)
    producer.poll(0)
    if number % 1000 == 0:
        producer.flush()
        print(f"{number} payments so far", flush=True)
    time.sleep(0.1)
