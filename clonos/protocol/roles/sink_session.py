"""What the process of a sink's instance does with what its conduit sends.

Every bundle becomes one atomic write of rows, determinants and cursors (`protocol.engine.output_commit`). Only when
that has taken effect is the bundle acknowledged, and the conduit told at once that it may forget it: a sink keeps
nothing that its store does not have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from clonos.errors import ProtocolError
from clonos.protocol.engine.instance import Bundle
from clonos.protocol.engine.output_commit import SinkInstance, Write
from clonos.protocol.fence import Fence
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.steps import Steps


class SinkPorts(ABC):
    """What a sink's session asks of the runtime that drives it."""

    @abstractmethod
    def open_sink(self, request: AttachRequest) -> Steps:
        """Under the request's fence, which stops the writer before; the cursors by channel. Raises Fenced."""

    @abstractmethod
    def write(self, write: Write) -> Steps:
        """Until it has taken effect, as a whole."""

    @abstractmethod
    def send_checkpointed(self, seq: int) -> Steps:
        """OUTPUT without rows, and CHECKPOINTED, up to this bundle."""

    @abstractmethod
    def ends(self) -> Steps:
        """All input has been written."""


class SinkSession:
    """See the module."""

    recovered_end = LOG_BEGIN

    def __init__(self, name: str, origin: Origin, ports: SinkPorts) -> None:
        self._name = name
        self._origin = origin
        self._ports = ports
        self._sink: SinkInstance | None = None
        self.progress = 0
        self.request: AttachRequest

    def attach(self, request: AttachRequest) -> Steps:
        """A conduit has connected: the sink's store says where the instance stands."""
        self.request = request
        cursors = yield from self._ports.open_sink(request)
        self._opened(cursors)
        self._begin(cursors)

    def _opened(self, cursors: Mapping[int, int]) -> None:
        """The sink's store has come so far."""

    def _begin(self, covered: Mapping[int, int]) -> None:
        """Beyond these positions."""
        self._sink = SinkInstance(self._name, self._origin.instance, dict(covered))
        self._sink.open_epoch(self.request.epoch)

    @property
    def held_rows(self) -> int:
        """That it has been sent and does not show yet."""
        return 0

    def open_epoch(self) -> Steps:
        """Nothing is left to repeat."""
        yield from ()

    def takes_another(self, rows: int) -> bool:
        """Each is a transaction of its own."""
        return False

    def bundle(self, seq: int, records: Bundle, first: int | None = None) -> Steps:
        assert self._sink is not None
        write = self._sink.take(records)
        if write is not None:
            yield from self._ports.write(write)
            self.progress += len(write.rows)
        yield from self._ports.send_checkpointed(seq)

    def tick(self) -> Steps:
        """A sink has no timers."""
        yield from ()

    def end(self, last: int) -> Steps:
        """The number of the last output row: a sink has none."""
        yield from self._ports.ends()
        return 0

    def commit(self, epoch: Epoch, truncation_points: Mapping[Origin, LogOffset]) -> None:
        """The coordinator truncates the logs of sinks."""

    def hear_rounds(self, rounds: Rounds) -> Steps:
        """It shows what it is sent at once."""
        yield from ()

    def conduit_is_gone(self) -> None:
        """What has been written stays."""

    def stand_by(self, request: AttachRequest) -> Steps:
        raise ProtocolError("a sink has no standby")

    def follow(self, log_start: LogOffset, log: bytes) -> Steps:
        raise ProtocolError("a sink has no standby")

    def take_over(self, fence: Fence, emitted_output: OutputNumber) -> Steps:
        raise ProtocolError("a sink has no standby")

    def end_standby(self, last: int) -> None:
        raise ProtocolError("a sink has no standby")

    def acknowledge(self) -> None:
        raise ProtocolError("a sink has no standby")
