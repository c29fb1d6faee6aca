"""What Spark's connector for Kafka says when it fails, as errors of ours that name topic, partition and offsets."""

from __future__ import annotations

import re
from typing import Final

from clonos.errors import ClonosError, InputLost
from clonos.protocol.roles.restart_policy import QueryFailed

_LOST: Final = re.compile(
    r"Some data may have been lost because they are not available in Kafka.*?Reason: (.*)", re.DOTALL
)
_REASON_ENDS: Final = re.compile(r"\s+with consumer group |\s*SQLSTATE: |\n\s+at |\n=== ")
_OUT_OF_RANGE: Final = re.compile(
    r"FetchPosition\{offset=(\d+).*? is out of range for partition (\S+)-(\d+)", re.DOTALL
)
_NO_TOPIC: Final = "UnknownTopicOrPartitionException"

_GO_ON: Final = (
    "The topic's retention has passed the checkpoint, or the topic was deleted and made anew. To go on without these "
    "records, set the source's option failOnDataLoss to false; a query in real time has to run once with "
    "trigger(availableNow=True) then, which takes it past the gap"
)


def of_kafka(text: str) -> ClonosError | None:
    """The error that this text of a failed Spark query means, if it is one of the connector's."""
    lost = _LOST.search(text)
    if lost is not None:
        reason = " ".join(_REASON_ENDS.split(lost.group(1), maxsplit=1)[0].split())
        return InputLost(f"records that the query has not read are gone from Kafka: {reason}", hint=_GO_ON)
    behind = _OUT_OF_RANGE.search(text)
    if behind is not None:
        offset, topic, partition = behind.groups()
        return InputLost(
            f"records that the query has not read are gone from Kafka: there is no offset {offset} in partition "
            f"{partition} of the topic {topic}",
            hint=_GO_ON,
        )
    if _NO_TOPIC in text:
        return QueryFailed(
            "a topic or partition that the query reads is not there, or not any more, says Kafka",
            hint="Look whether each topic that the query subscribes to is there, under that name, on those servers",
        )
    return None
