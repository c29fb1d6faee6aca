"""What a replica process and its conduits say to each other, and in which order.

A conduit says what it wants (`AttachRequest`) and is welcomed when the instance has been restored. It sends bundles and
ticks; after the last bundle of the epoch the process makes the end durable, tells its server that it may go on with the
next epoch, and says ENDED. Then the connection is over, and another may come.

A conduit of a standby sends bundles, and how the log of the replica goes on. It may ask the standby to begin again from
a newer snapshot. It ends the epoch, or makes the standby the replica, which it is only if its server has raised the
fence for it. A standby without its conduit is of no use: in the middle of an epoch it cannot go on with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Protocol

from clonos.errors import (
    ClonosError,
    FaultInjected,
    Fenced,
    ProtocolError,
    RecoveryTimeout,
    ReplicaLost,
    ResumeFailed,
    RollbackNeeded,
    UserFunctionError,
)
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.messages import End, Follow, Promote, Tick
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.steps import Steps

Word = Tick | End | Follow | Promote | AttachRequest
"""What a conduit sends besides bundles."""


class InstanceSession(Protocol):
    """Of an operator or of a sink (`operator_session`, `sink_session`)."""

    @property
    def progress(self) -> int: ...
    @property
    def recovered_end(self) -> LogOffset: ...
    def attach(self, request: AttachRequest) -> Steps: ...
    def open_epoch(self) -> Steps: ...
    def takes_another(self, rows: int) -> bool: ...
    def bundle(self, seq: int, records: Bundle, first: int | None = None) -> Steps: ...
    def tick(self) -> Steps: ...
    def end(self, last: int) -> Steps: ...
    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None: ...
    def hear_rounds(self, rounds: Rounds) -> Steps: ...
    def conduit_is_gone(self) -> None: ...
    def stand_by(self, request: AttachRequest) -> Steps: ...
    def follow(self, log_start: LogOffset, log: bytes) -> Steps: ...
    def take_over(self, fence: Fence, emitted_output: OutputNumber) -> Steps: ...
    def end_standby(self, last: int) -> None: ...
    def acknowledge(self) -> None: ...


class ReplicaPorts(Protocol):
    """What the role asks of the process that drives it."""

    def welcome(self, log_end: LogOffset) -> None:
        """WELCOME: the instance has its log up to here."""

    def follows(self, epoch: Epoch) -> None:
        """Tell the server that the standby is restored."""

    def is_granted(self, promoted: AttachRequest) -> Steps:
        """Ask the server to raise the fence; whether it did. Raises StorageUnavailable where it cannot."""

    def at_end(self, epoch: Epoch) -> None:
        """Tell the server that the process stands at the end of an epoch."""

    def ended(self, emitted_output: OutputNumber) -> None:
        """ENDED: the epoch's last row has this number."""


class Standing(Enum):
    """Where a conversation stands."""

    NOT_ATTACHED = "not attached"
    SERVING = "serving"
    STANDING_BY = "standing by"


class ReplicaSession:
    """See the module. One process, with one conduit after another."""

    def __init__(self, instance: InstanceSession, ports: ReplicaPorts) -> None:
        self._instance = instance
        self._ports = ports
        self._standing = Standing.NOT_ATTACHED
        self._request: AttachRequest

    @property
    def is_attached(self) -> bool:
        """Whether there is a conversation that has not come to its end."""
        return self._standing is not Standing.NOT_ATTACHED

    @property
    def stands_by(self) -> bool:
        return self._standing is Standing.STANDING_BY

    @property
    def gives_way(self) -> bool:
        """Whether another conduit may have the process at once. What a standby was sent it still has before it, and the
        conduit that comes for the next epoch waits for that."""
        return self._standing is not Standing.STANDING_BY

    def attach(self, request: AttachRequest) -> Steps:
        """A conduit has connected, and said what it wants."""
        self._request = request
        if request.standby:
            self._standing = Standing.STANDING_BY
            yield from self._instance.stand_by(request)
            self._welcome()
            self._ports.follows(request.epoch)
            return
        self._standing = Standing.SERVING
        yield from self._instance.attach(request)
        self._welcome()
        yield from self._instance.open_epoch()

    def takes_another(self, rows: int) -> bool:
        """Whether bundles with so many rows in all may be taken as one with the next, if it is there already."""
        return self._standing is Standing.SERVING and self._instance.takes_another(rows)

    def bundle(self, seq: int, records: Bundle, first: int | None = None) -> Steps:
        """Records have come; with `first`, those of the bundles from that one to `seq`."""
        yield from self._instance.bundle(seq, records, first)

    def hear(self, word: Word) -> Steps:
        """Something else has come. Raises ProtocolError where it is not its turn."""
        if self._standing is Standing.STANDING_BY:
            yield from self._hear_as_standby(word)
        elif isinstance(word, Tick):
            yield from self._instance.tick()
        elif isinstance(word, End):
            emitted_output = yield from self._instance.end(word.seq)
            self._ports.at_end(self._request.epoch)
            self._standing = Standing.NOT_ATTACHED
            self._ports.ended(emitted_output)
        else:
            raise ProtocolError(f"{type(word).__name__} is not for a replica")

    def _hear_as_standby(self, word: Word) -> Steps:
        if isinstance(word, Follow):
            yield from self._instance.follow(word.log_start, word.log)
        elif isinstance(word, AttachRequest):  # from a newer snapshot
            self._request = word
            yield from self._instance.stand_by(word)
            # The conduit may call this the replica meanwhile, so the answer suits both.
            self._instance.acknowledge()
        elif isinstance(word, Promote):
            yield from self._promote(word)
        elif isinstance(word, End):
            self._instance.end_standby(word.seq)
            self._ports.at_end(self._request.epoch)
            self._standing = Standing.NOT_ATTACHED
        else:
            raise ProtocolError(f"{type(word).__name__} is not for a standby")

    def _promote(self, word: Promote) -> Steps:
        promoted = replace(self._request, fence=word.fence, emitted_output=word.emitted_output, standby=False)
        if not (yield from self._ports.is_granted(promoted)):
            raise Fenced("a later attempt has been here before this standby was promoted")
        self._request, self._standing = promoted, Standing.SERVING
        self._welcome()
        yield from self._instance.take_over(word.fence, word.emitted_output)

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """An epoch has committed: logs before these offsets may go."""
        self._instance.commit(epoch, truncation_points)

    def hear_rounds(self, rounds: Rounds) -> Steps:
        """How far the rounds of this start of the query are, between two words of the conduit."""
        yield from self._instance.hear_rounds(rounds)

    def conduit_is_gone(self) -> None:
        """The conversation is over. Raises ReplicaLost where the process has to end with it."""
        standing, self._standing = self._standing, Standing.NOT_ATTACHED
        self._instance.conduit_is_gone()
        if standing is Standing.STANDING_BY:
            raise ReplicaLost("the conduit has let go of its standby")

    def _welcome(self) -> None:
        self._ports.welcome(self._instance.recovered_end)


def may_be_retried(error: ClonosError) -> bool:
    """Whether another process may come further, so that the conduit is to ask for one. What a script or the user's
    function raised is the task's failure, and another task attempt may resume elsewhere. Another process would wait as
    long as this one has, so a deadline that has passed is the task's failure, too, and names what was waited for."""
    final = FaultInjected | UserFunctionError | ResumeFailed | RollbackNeeded | RecoveryTimeout
    return error.retryable and not isinstance(error, final)
