"""What a replica server and a replica process say to each other on their control line (`control`), as values.

A message is a map with its name and its fields. Both ends are of one library, since one forks the other, so the form
has no version; a message that cannot be read is a ProtocolError all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from clonos.errors import ProtocolError
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.protocol.roles.death import Death
from clonos.wire.messages import Hello
from clonos.wire.safe_points import pack_safe, parse_safe
from clonos.wire.truncation_points import pack_points, parse_points

# ------------------------------------------------------- from server to replica


@dataclass(frozen=True, slots=True)
class Assign:
    """Which instance the process is to be."""

    origin: Origin


@dataclass(frozen=True, slots=True)
class Connect:
    """A conduit's connection: its descriptor comes with the message. `previous` is the death of the process before."""

    hello: Hello
    previous: Death | None


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch is committed: logs before the truncation points are forgotten."""

    epoch: Epoch
    truncation_points: Mapping[Origin, LogOffset]


@dataclass(frozen=True, slots=True)
class RoundsSaid:
    """How far the rounds of this start of the query are."""

    rounds: Rounds


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to `AskPromotion`. A server whose disk cannot keep the fence says why in `cannot`."""

    is_granted: bool
    cannot: str | None = None


# ------------------------------------------------------- from replica to server


@dataclass(frozen=True, slots=True)
class Recovered:
    """The instance is live again: how long the phases of its recovery took, and how much was repeated."""

    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """The checkpoint of a round is durable, in a start of the query."""

    generation: Generation
    stored: StoredRound


@dataclass(frozen=True, slots=True)
class Figures:
    """How far the process has come, since it began."""

    said: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Follows:
    """A standby follows its replica in this epoch."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class AskPromotion:
    """A standby asks to be the replica, under the fence of this HELLO. The answer is `Granted`."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The epoch is over, and the process waits for the next one. A standby has no figures."""

    epoch: Epoch
    figures: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The process ends, and its task fails: with which error class and message, in which start of the query."""

    generation: Generation
    error: str
    message: str


ControlMessage: TypeAlias = (
    Assign
    | Connect
    | Committed
    | RoundsSaid
    | Granted
    | Recovered
    | CheckpointStored
    | Figures
    | Follows
    | AskPromotion
    | AtEnd
    | Failed
)

_KINDS: Final[dict[str, type[ControlMessage]]] = {
    kind.__name__: kind
    for kind in (
        Assign,
        Connect,
        Committed,
        RoundsSaid,
        Granted,
        Recovered,
        CheckpointStored,
        Figures,
        Follows,
        AskPromotion,
        AtEnd,
        Failed,
    )
}
_WRITTEN: Final[dict[str, Callable[[Any], Any]]] = {
    "hello": lambda hello: hello.to_dict(),
    "previous": lambda death: None if death is None else death.to_dict(),
    "truncation_points": pack_points,
    "rounds": lambda rounds: [
        rounds.begun,
        list(rounds.complete),
        rounds.committed,
        pack_safe(rounds.safe),
        rounds.generation,
    ],
    "stored": list,
}
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "origin": lambda said: Origin(*said),
    "hello": Hello.from_dict,
    "previous": lambda said: None if said is None else Death(**said),
    "truncation_points": lambda said: parse_points(said, "Committed"),
    "rounds": lambda said: Rounds(
        said[0], StoredRound(*said[1]), said[2], parse_safe(said[3], "RoundsSaid"), said[4]
    ),
    "stored": lambda said: StoredRound(*said),
}


def pack_control(message: ControlMessage) -> dict[str, Any]:
    """The map that `ControlChannel.send` takes."""
    packed: dict[str, Any] = {"kind": type(message).__name__}
    for field in fields(message):
        packed[field.name] = _WRITTEN.get(field.name, _as_is)(getattr(message, field.name))
    return packed


def parse_control(said: Mapping[str, Any]) -> ControlMessage:
    """Raises ProtocolError for a map that is no message."""
    given = dict(said)
    name = given.pop("kind", None)
    try:
        return _KINDS[name](**{key: _READ.get(key, _as_is)(value) for key, value in given.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"a control message {name!r} cannot be read: {error}") from error


def _as_is(value: Any) -> Any:
    return value
