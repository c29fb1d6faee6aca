"""Whether the topics of Kafka that a query reads are the ones that its checkpoint counts the offsets of.

    <checkpoint>/clonos/topics    JSON: format version, checksum, by source and topic the topic's id

A topic that was deleted and made anew has its name and another id. Spark does not look at it: where the new topic has
as many messages as had been read of the old one, it would go on behind them. So each start asks Kafka for the ids.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from clonos.errors import InputLost
from clonos.json_text import parsed_json
from clonos.protocol.roles.restart_policy import QueryFailed
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.facts import kind_of, options_of

LOG = logging.getLogger("clonos")

_PREFIX: Final = "kafka."
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers say that know of no ids: 16 zeros, in base64."""
_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """`place`: its node, and which of the node's sources it is; `options`: as the user gave them, with names in lower
    case."""

    spark: Any
    place: str
    name: str
    options: Mapping[str, str] = field(repr=False)  # there may be secrets among them

    def reads(self, topic: str) -> bool:
        pattern = self.options.get("subscribepattern")
        if pattern is not None:  # of Java's kind
            return bool(self.spark._jvm.java.util.regex.Pattern.matches(pattern, topic))
        return any(topic in topics for topics in self._topics())

    def _topics(self) -> Iterator[Collection[str]]:
        yield [each.strip() for each in self.options.get("subscribe", "").split(",")]
        if "assign" in self.options:
            yield parsed_json(self.options["assign"])

    @property
    def loss_ends_it(self) -> bool:
        return self.options.get("failondataloss", "true").strip().lower() != "false"

    @property
    def client_settings(self) -> dict[str, str]:
        return {
            name.removeprefix(_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(_PREFIX)
        }


def kafka_sources(df: Any, node: int, name: str) -> Iterator[KafkaSource]:
    """Those of a streaming DataFrame that is read as a source node."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    for at, leaf in enumerate(map(leaves.apply, range(leaves.size()))):
        if kind_of(leaf) == "kafka":
            yield KafkaSource(df.sparkSession, f"{node}/{at}", name, options_of(leaf))


def check_topics(
    checkpoint: Checkpoint, sources: Sequence[KafkaSource], *, same_source: bool = False
) -> None:
    """Raises InputLost where a topic is another one than before, and QueryFailed where Kafka does not answer.
    `same_source`: the user says that topics which are at another place have the same records."""
    if not sources:
        return
    before = checkpoint.topics()
    after = dict(before)
    for source in sources:
        known, now = before.get(source.place, {}), _ids(source)
        for topic in sorted(set(known) & set(now)):
            if known[topic] != now[topic] and not same_source:
                _made_anew(source, topic, known[topic], now[topic])
        after[source.place] = {**known, **now}
    if after != before:
        checkpoint.keep_topics(after)


def _made_anew(source: KafkaSource, topic: str, before: str, now: str) -> None:
    says = f"the topic {topic} that {source.name!r} reads was deleted and made anew: its id was {before}, and is {now}"
    if source.loss_ends_it:
        raise InputLost(
            says,
            hint="Its records are others than those whose offsets the checkpoint has. Begin with a new "
            "checkpointLocation; or set the source's option failOnDataLoss to false, to go on behind these offsets",
        )
    LOG.warning("%s; the query goes on behind the offsets that it has read", says)


def _ids(source: KafkaSource) -> dict[str, str]:
    """The ids of its topics that are there."""
    from py4j.protocol import Py4JError, Py4JJavaError

    java = source.spark._jvm
    settings = java.java.util.Properties()
    for name, value in {"default.api.timeout.ms": str(_TIMEOUT_MS), **source.client_settings}.items():
        settings.put(name, value)
    unknown = "%r: not known whether its topics are the same as before: %s"
    try:
        with closing(java.org.apache.kafka.clients.admin.Admin.create(settings)) as admin:
            listed = admin.listTopics().listings().get().toArray()
            found = {str(each.name()): str(each.topicId()) for each in listed}
    except Py4JJavaError as error:
        text = str(error.java_exception.getMessage())
        if "Timeout" in text:
            servers = source.client_settings.get("bootstrap.servers")
            raise QueryFailed(
                f"Kafka at {servers}, which {source.name!r} reads, does not answer: {text}",
                hint="Look whether it runs, and whether this host can reach it",
            ) from error
        LOG.warning(unknown, source.name, text)
        return {}
    except (Py4JError, TypeError) as error:  # the connector comes with another client
        LOG.warning(unknown, source.name, error)
        return {}
    return {
        topic: identity for topic, identity in found.items() if identity != _NO_ID and source.reads(topic)
    }
