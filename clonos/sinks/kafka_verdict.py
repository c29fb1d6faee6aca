"""What Kafka's failures mean for a sink: what can pass by itself, and what waiting cannot mend."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError

from clonos.errors import ClonosError, SinkError, SinkUnavailable

NO_CONNECTION: Final = frozenset(
    {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}
)
NOT_ALLOWED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})
NO_TOPIC: Final = frozenset(
    {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
)
REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
    }
    | {KafkaError._INVALID_ARG, KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, KafkaError.INVALID_RECORD}
)


def verdict(error: Any, place: str) -> ClonosError:
    """What a KafkaError means for the sink."""
    code, text = error.code(), f"{place}: {error.str()}"
    if code in NO_CONNECTION:
        return SinkError(
            text, hint="Look at what options= says of security.protocol, certificates, user and password"
        )
    if code in NOT_ALLOWED:
        return SinkError(
            text,
            hint="The user whom the sink's options= name needs the right to write to the topic; to create, alter, read "
            "and write topics that begin with the sink's prefix=, and delete records of them; and, unless "
            "mode='at_once', to use transactional ids that begin so",
        )
    if code in NO_TOPIC:
        return SinkError(text, hint="Create the topic; a Kafka sink does not")
    if code in TOO_LARGE | REFUSED:
        return SinkError(text)
    return SinkUnavailable(text)


def row_verdict(row: str, error: Any, place: str, *, visible: str) -> ClonosError:
    """What it means where it came for one row. `visible`: what is visible of the row's bundle then."""
    if error.code() not in TOO_LARGE | REFUSED:
        return verdict(error, f"{place}, row {row}")
    hint = f"{visible} "
    if error.code() in TOO_LARGE:
        hint += "Let the topic take larger messages (max.message.bytes), and the sink's client too: "
        hint += "options={'message.max.bytes': ...}"
    return SinkError(f"row {row} cannot be written to Kafka: {error.str()}", hint=hint.strip())
