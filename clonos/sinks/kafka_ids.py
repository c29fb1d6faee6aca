"""The id that each message of a Kafka sink bears.

    of a sink with transactions    <query>/<node>-<instance>-<position>
    of one that writes at once     <query>/<sink node>-<sink instance>/<node>-<instance>-<position>

What stands before the position is the message's *channel*. The numbers of an operator's rows rise at each sink
instance, but not over several, so where repetitions are told by them, the sink instance is part of the channel.
"""

from __future__ import annotations

from typing import Final

from clonos.protocol.ids import Origin

ID_HEADER: Final = "clonos_id"
"""The header of every message, in ASCII."""


def committed_prefix(query: str, origin: Origin) -> str:
    """What comes before a row's id, where the rows of a bundle are visible with its transaction."""
    return f"{query}/"


def at_once_prefix(query: str, origin: Origin) -> str:
    """What comes before it where rows may come again; `origin` is the sink instance."""
    return f"{query}/{origin.node}-{origin.instance}/"


def channel_and_position(message_id: str) -> tuple[str, int] | None:
    """Of a message that may come again; None where it is of another kind."""
    channel, dash, position = message_id.rpartition("-")
    if not dash or channel.count("/") < 2 or not (position.isascii() and position.isdigit()):
        return None
    return channel, int(position)
