"""What a replica server is asked on a connection that is no conduit's, and what it answers, as values.

The driver tells it of commits and starts, a conduit why it fails its task, and `clonos status` asks how it stands. Each
request is one JSON object with its name and its fields, in the place of HELLO, whose version it shares; each answer is
one in the place of WELCOME (docs/wire.md). A sender that speaks another version of the wire is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from clonos.errors import ProtocolError
from clonos.protocol.fence import Generation
from clonos.protocol.ids import NO_EPOCH, Epoch, LogOffset, Origin
from clonos.protocol.recovery.marker import NO_ROUND, Round
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound
from clonos.wire.json_fields import epoch_of, generation_in, origin_of, text, whole
from clonos.wire.safe_points import pack_safe, parse_safe
from clonos.wire.server_status import ServerStatus, parse_status
from clonos.wire.truncation_points import pack_points, parse_points

_REQUEST: Final = "admin request"
_ANSWER: Final = "admin answer"
ParsedT = TypeVar("ParsedT")

# ------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class CommitEpoch:
    """An epoch is committed: replicas forget logs before the truncation points. The answer is `CommitTold`."""

    epoch: Epoch
    truncation_points: Mapping[Origin, LogOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeginGeneration:
    """A start of the query: replicas of older ones are dead when the answer, `Done`, comes."""

    generation: Generation


@dataclass(frozen=True, slots=True)
class ExchangeRounds:
    """How far the rounds of a start of the query are. The answer is `StoredRounds`."""

    generation: Generation
    rounds: Rounds


@dataclass(frozen=True, slots=True)
class SetHolders:
    """Where the determinant services of the query are. The answer is `Done`."""

    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """Why a conduit fails its task: the class and the text of the error. The answer is `Done`."""

    origin: Origin
    generation: Generation
    epoch: Epoch
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class GetStatus:
    """The answer is `Status`."""


@dataclass(frozen=True, slots=True)
class StopServer:
    """The server ends after its answer, `Done`."""


AdminRequest: TypeAlias = (
    CommitEpoch | BeginGeneration | ExchangeRounds | SetHolders | ReportFailure | GetStatus | StopServer
)

# -------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked for has been done."""


@dataclass(frozen=True, slots=True)
class CommitTold:
    """How many replicas serve an instance."""

    replicas: int


@dataclass(frozen=True, slots=True)
class StoredRounds:
    """By instance, the last round of which its checkpoint is durable, and in which epoch."""

    stored: Mapping[Origin, StoredRound]


@dataclass(frozen=True, slots=True)
class Status:
    """Replicas, spare processes, deaths, failures and recoveries."""

    said: ServerStatus


AdminAnswer: TypeAlias = Done | CommitTold | StoredRounds | Status

# ---------------------------------------------------------------------- codec


def pack_request(request: AdminRequest) -> dict[str, Any]:
    """The JSON object of a request."""
    match request:
        case CommitEpoch(epoch, points):
            said: dict[str, Any] = {"epoch": epoch, "truncation_points": pack_points(points)}
        case BeginGeneration(generation):
            said = {"generation": generation}
        case ExchangeRounds(generation, rounds):
            said = {"generation": generation, "begun": rounds.begun, "complete": list(rounds.complete)}
            said |= {"committed": rounds.committed, "safe": pack_safe(rounds.safe)}
        case SetHolders(addresses):
            said = {"addresses": list(addresses)}
        case ReportFailure((node, instance), generation, epoch, error, message):
            said = {"node": node, "instance": instance, "generation": generation, "epoch": epoch}
            said |= {"error": error, "message": message}
        case GetStatus() | StopServer():
            said = {}
    return {"kind": type(request).__name__, **said}


def parse_request(said: Mapping[str, Any]) -> AdminRequest:
    """Raises ProtocolError for an object that is no request."""
    return _parse(_REQUESTS, said, _REQUEST)


def pack_answer(answer: AdminAnswer) -> dict[str, Any]:
    """The JSON object of an answer."""
    match answer:
        case Done():
            said: dict[str, Any] = {}
        case CommitTold(replicas):
            said = {"replicas": replicas}
        case StoredRounds(stored):
            said = {"stored": [[*origin, *last] for origin, last in sorted(stored.items())]}
        case Status(status):
            said = {"status": dict(status)}
    return {"kind": type(answer).__name__, **said}


def parse_answer(said: Mapping[str, Any]) -> AdminAnswer:
    """Raises ProtocolError for an object that is no answer."""
    return _parse(_ANSWERS, said, _ANSWER)


def _parse(
    parsers: Mapping[str, Callable[[Mapping[str, Any]], ParsedT]], said: Mapping[str, Any], name: str
) -> ParsedT:
    kind = said.get("kind")
    parser = parsers.get(kind) if isinstance(kind, str) else None
    if parser is None:
        raise ProtocolError(f"{name}: the kind must be one of {', '.join(parsers)}, not {kind!r}")
    return parser(said)


def _parse_commit_epoch(said: Mapping[str, Any]) -> CommitEpoch:
    points = parse_points(said.get("truncation_points"), _REQUEST)
    return CommitEpoch(epoch_of(said, _REQUEST), points)


def _parse_begin_generation(said: Mapping[str, Any]) -> BeginGeneration:
    return BeginGeneration(generation_in(said, _REQUEST))


def _parse_exchange_rounds(said: Mapping[str, Any]) -> ExchangeRounds:
    complete = said.get("complete")
    if not isinstance(complete, list) or len(complete) != 2:
        raise ProtocolError(f"{_REQUEST}: {complete!r} is not an epoch and a round")
    inside, round = complete
    if type(round) is not int or round < NO_ROUND:
        raise ProtocolError(f"{_REQUEST}: {round!r} is no round")
    rounds = Rounds(
        Round(whole(said, "begun", _REQUEST)),
        StoredRound(_epoch_or_none(inside), Round(round)),
        _epoch_or_none(said.get("committed")),
        parse_safe(said.get("safe", []), _REQUEST),
    )
    return ExchangeRounds(generation_in(said, _REQUEST), rounds)


def _epoch_or_none(said: Any) -> Epoch:
    """NO_EPOCH before the first."""
    if type(said) is not int or said < NO_EPOCH:
        raise ProtocolError(f"{_REQUEST}: {said!r} is no epoch")
    return Epoch(said)


def _parse_set_holders(said: Mapping[str, Any]) -> SetHolders:
    addresses = said.get("addresses")
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise ProtocolError(f"{_REQUEST}: {addresses!r} is not a list of addresses")
    return SetHolders(tuple(addresses))


def _parse_report_failure(said: Mapping[str, Any]) -> ReportFailure:
    return ReportFailure(
        origin_of(said, _REQUEST),
        generation_in(said, _REQUEST),
        epoch_of(said, _REQUEST),
        text(said, "error", _REQUEST),
        text(said, "message", _REQUEST),
    )


def _parse_commit_told(said: Mapping[str, Any]) -> CommitTold:
    return CommitTold(whole(said, "replicas", _ANSWER))


def _parse_stored_rounds(said: Mapping[str, Any]) -> StoredRounds:
    stored = said.get("stored")
    if not isinstance(stored, list) or not all(_is_stored(each) for each in stored):
        raise ProtocolError(f"{_ANSWER}: {stored!r} does not say of instances what they have stored")
    return StoredRounds(
        {
            Origin.of(node, instance): StoredRound(Epoch(epoch), Round(round))
            for node, instance, epoch, round in stored
        }
    )


def _is_stored(said: Any) -> bool:
    return isinstance(said, list) and len(said) == 4 and all(type(one) is int and one >= 0 for one in said)


def _parse_status(said: Mapping[str, Any]) -> Status:
    status = said.get("status")
    if not isinstance(status, dict):
        raise ProtocolError(f"{_ANSWER}: status is not an object")
    return Status(parse_status(status, _ANSWER))


_REQUESTS: Final[Mapping[str, Callable[[Mapping[str, Any]], AdminRequest]]] = {
    "CommitEpoch": _parse_commit_epoch,
    "BeginGeneration": _parse_begin_generation,
    "ExchangeRounds": _parse_exchange_rounds,
    "SetHolders": _parse_set_holders,
    "ReportFailure": _parse_report_failure,
    "GetStatus": lambda _said: GetStatus(),
    "StopServer": lambda _said: StopServer(),
}
_ANSWERS: Final[Mapping[str, Callable[[Mapping[str, Any]], AdminAnswer]]] = {
    "Done": lambda _said: Done(),
    "CommitTold": _parse_commit_told,
    "StoredRounds": _parse_stored_rounds,
    "Status": _parse_status,
}
