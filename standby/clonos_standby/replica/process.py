"""The replica process: one instance of one operator or sink, epoch after epoch.

Forked warm by the supervisor, it waits to be told which instance it is and for conduits' connections, one per task
attempt. What a connection brings, and in which order, is `protocol.roles.replica_session`'s matter. Within a connection
the process is single-threaded and event-driven: frames from the conduit, words from the supervisor, finished background
work. An error that the protocol foresees goes to the conduit as an ERROR frame with its traceback;
then the process ends, because what it holds in memory is no longer trusted.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.errors import (
    ClonosError,
    DivergenceError,
    ProtocolError,
    ReplicaLost,
    StorageUnavailable,
    UserFunctionError,
    Where,
)
from clonos.operators.intercept.advice import advised
from clonos.operators.intercept.install import install, is_installed
from clonos.protocol.fence import Fence, generation_of
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.messages import End, Follow, Promote, Tick
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.death import LET_GO, REPORTED, Death
from clonos.protocol.roles.replica_session import ReplicaSession, may_be_retried
from clonos.protocol.roles.steps import Steps, carry_out
from clonos.storage import object_store
from clonos.storage.disk_errors import unavailable
from clonos.testing.faults import FaultInjector, Point, read_script
from clonos.wire.framing import FrameType
from clonos.wire.messages import Bundle, Hello, Resume, pack_ended, pack_error, pack_welcome, parse
from clonos_standby.cluster.spec import NodeSpec, load
from clonos_standby.replica.connection import ConduitGone, Connection, Heartbeat
from clonos_standby.replica.error_report import shows_traceback, traceback_of
from clonos_standby.replica.holding_sink_host import HoldingSinkHost
from clonos_standby.replica.host import Host
from clonos_standby.replica.operator_host import OperatorHost
from clonos_standby.replica.sink_host import SinkHost
from clonos_standby.replica.watchdog import end_stuck
from clonos_standby.server.control import Control, ControlChannel, ControlClosed
from clonos_standby.server.control_messages import (
    AskPromotion,
    Assign,
    AtEnd,
    CheckpointStored,
    Committed,
    Connect,
    ControlMessage,
    Failed,
    Figures,
    Follows,
    Granted,
    Recovered,
    RoundsSaid,
    pack_control,
    parse_control,
)
from clonos_standby.server.histogram import BUNDLE_SECONDS, Histogram
from clonos_standby.server.log import Level, log, name_operators, speak_of

HEARTBEAT_SECONDS = 0.5
FIGURES_SECONDS = 1.0
_LONGEST_REASON = 16 * 1024


class Replica:
    """The process's loop."""

    def __init__(self, control: ControlChannel, spec_path: str) -> None:
        self._control = control
        self._spec_path = spec_path
        self._origin: Origin | None = None
        self._host: Host | None = None
        self._host_due = float("inf")
        self._preparing = threading.Thread(target=self._prepare, name="prepare", daemon=True)
        self._name: str | None = None
        self._spec: NodeSpec | None = None
        self._words: list[Control] = []
        self._session: ReplicaSession | None = None
        self._figures_due = 0.0
        self._bundle_seconds = Histogram(BUNDLE_SECONDS)

    def run(self) -> None:
        """Until the supervisor says so or is gone."""
        self._preparing.start()
        while True:
            control = self._words.pop(0) if self._words else self._control.receive()
            assert control is not None
            self._hear(control)

    def _prepare(self) -> None:
        """Import the modules of the user's functions while no conduit waits for this process. Each process does it for
        itself: what a module opens or starts at its import must not be shared by forks. Errors show when the instance
        is built."""
        with contextlib.suppress(Exception):
            query = load(self._spec_path)
            if query.settings.intercept:
                install()  # before any module of the user is imported
            for number in query.nodes:
                if self._origin is not None:
                    return
                with contextlib.suppress(Exception):
                    query.node(number)

    def _hear(self, control: Control) -> None:
        message = parse_control(control.message)
        if isinstance(message, Assign):
            self._origin = message.origin
        elif isinstance(message, Connect):
            self._serve(message.hello, control.fds[0], message.previous)
        elif isinstance(message, Committed):
            self._commit(message)
        elif isinstance(message, RoundsSaid):
            self._hear_rounds(message)

    def _hear_rounds(self, said: RoundsSaid) -> None:
        if self._session is not None:
            carry_out(self._session.hear_rounds(said.rounds))
        if self._host is not None:
            self._tell_stored(self._host)

    def _build(self) -> Host:
        """What it is to be. It imports the modules of the user's functions, which may take longer than a conduit would
        wait for a silent process: heartbeats run already."""
        if self._origin is None:
            raise ProtocolError("a connection came before the process was told which instance it is")
        number, instance = self._origin
        self._query = load(self._spec_path)
        object_store.use(self._query.stores)
        self._host_due = time.monotonic() + self._query.settings.function_deadline
        self._preparing.join()
        if self._query.settings.intercept and not is_installed():
            install()  # what has kept it from that, or from reading the spec, shows here
        node = self._spec = self._node(number)
        self._name = node.name
        name_operators(self._query.names)
        speak_of(node=number, instance=instance)
        faults = FaultInjector(
            read_script(self._query.faults),
            operator=node.name,
            instance=instance,
            marks=Path(self._query.home) / "faults",
            driver_pids=self._query.driver_pids,
        )
        self._faults = faults
        return _kind_of(node)(self._query, node, instance, faults)

    def _node(self, number: int) -> NodeSpec:
        """With the user's functions: what goes wrong when their modules are imported is theirs."""
        try:
            return self._query.node(number)
        except ClonosError:
            raise
        except Exception as error:
            raise UserFunctionError(
                f"the function of {self._query.names.get(number, str(number))!r} cannot be loaded: "
                f"{type(error).__name__}: {error}",
                hint="Its modules must be importable in the processes that run it",
            ) from error

    def _commit(self, committed: Committed) -> None:
        if self._session is not None:
            self._session.commit(committed.epoch, committed.truncation_points)

    # -------------------------------------------------------- one connection

    def _serve(self, hello: Hello, fd: int, previous: Death | None) -> None:
        speak_of(epoch=hello.epoch)
        connection = self._connection = Connection(socket.socket(fileno=fd))
        heartbeat = Heartbeat(connection, HEARTBEAT_SECONDS, self._look)
        self._hello = hello
        self._previous = previous
        try:
            if self._host is None or self._session is None:
                self._host = self._build()
                self._session = ReplicaSession(self._host.session, self)
            self._host.attach(connection)
            self._converse(self._host, self._session, connection, heartbeat)
        except ConduitGone as error:
            log("conduit_gone", f"epoch {hello.epoch}: {error}", level=Level.INFO)
            self._is_over()
        except ControlClosed:
            raise
        except Exception as error:
            self._report(self._hello, connection, error)
            raise SystemExit(REPORTED) from error
        finally:
            heartbeat.stop()
            connection.close()

    def _is_over(self) -> None:
        try:
            if self._session is not None:
                self._session.conduit_is_gone()
        except ReplicaLost as error:
            raise SystemExit(LET_GO) from error

    def _look(self) -> None:
        if self._host is not None:
            self._host.look()
        elif time.monotonic() >= self._host_due:
            end_stuck("the import of the function's modules has not come to an end")

    def _report(self, hello: Hello, connection: Connection, error: Exception) -> None:
        """Tell the conduit, and the supervisor."""
        text = traceback_of(error)
        log("failed", text or str(error), level=Level.ERROR)
        if isinstance(error, OSError):  # those of the user's functions come as UserFunctionError
            error = unavailable(error, "what the replica keeps on its disk")
        if isinstance(error, DivergenceError) and self._spec is not None:
            intercept = self._query.settings.intercept
            error = advised(error, (self._spec.operator, self._spec.previous), intercept=intercept)
        name, message, retryable = type(error).__name__, str(error), False
        if isinstance(error, ClonosError):
            retryable = may_be_retried(error)
            message = str(error.at(Where(self._name, hello.instance, hello.epoch)))
            text = text if shows_traceback(error) else ""
        else:
            name, message = "ReplicaFailed", f"{name}: {message}"
        if not hello.standby:  # the loss of a standby fails neither the task nor the query
            with contextlib.suppress(ControlClosed):
                self._say(Failed(hello.generation, name, f"{message}\n{text}".strip()[:_LONGEST_REASON]))
        with contextlib.suppress(ConduitGone):
            connection.send(pack_error(name, message, retryable=retryable, traceback=text))

    def _converse(
        self, host: Host, session: ReplicaSession, connection: Connection, heartbeat: Heartbeat
    ) -> None:
        # A conduit that has ended the epoch does not listen to a standby any more, but what it said counts.
        connection.deaf = self._hello.standby
        carry_out(session.attach(self._request(self._hello)))
        while session.is_attached:
            if not session.stands_by:
                self._tell(host)
            if not self._await(connection, host, session):
                continue
            message = parse(connection.next())
            if isinstance(message, Bundle):
                began = time.monotonic()
                bundle = _with_those_behind(message, connection, session)
                carry_out(session.bundle(bundle.seq, host.read(bundle), message.seq))
                heartbeat.progress = host.session.progress
                self._bundle_seconds.observe(time.monotonic() - began)
            elif isinstance(message, Hello):
                self._hello = message
                carry_out(session.hear(self._request(message)))
            elif isinstance(message, Tick | End | Follow | Promote):
                carry_out(session.hear(message))
            else:
                raise ProtocolError(f"{type(message).__name__} is not for a replica")
        if not self._hello.standby:
            self._tell(host)
            self._faults.reached(Point.BEFORE_SPARK_COMMIT, self._hello.epoch)

    def _request(self, hello: Hello) -> AttachRequest:
        """HELLO and the RESUME behind it."""
        resume = parse(self._connection.next())
        if not isinstance(resume, Resume):
            raise ProtocolError(f"RESUME is due after HELLO, not {type(resume).__name__}")
        return AttachRequest(
            origin=hello.origin,
            epoch=hello.epoch,
            fence=hello.fence,
            fresh=hello.fresh,
            is_retry=hello.is_retry,
            emitted_output=resume.emitted_output,
            log_start=resume.log_start,
            log=bytes(resume.log),
            standby=hello.standby,
            failovers=hello.failovers,
            recovered=hello.recovered,
            realtime=hello.mode == "realtime",
            previous=self._previous,
        )

    def _tell(self, host: Host) -> None:
        """The supervisor hears of a recovery at once, of the rest now and then."""
        now = time.monotonic()
        self._tell_stored(host)
        if host.recovered is not None:
            self._say(Recovered({**host.recovered, "fence": Fence(self._hello.fence).text}))
            host.recovered = None
        if now >= self._figures_due:
            self._figures_due = now + FIGURES_SECONDS
            self._say(Figures(self._figures(host)))

    def _tell_stored(self, host: Host) -> None:
        if host.stored_round is not None:
            generation = generation_of(Fence(self._hello.fence))
            self._say(CheckpointStored(generation, host.stored_round))
            host.stored_round = None

    def _figures(self, host: Host) -> dict[str, float]:
        return {**host.figures(), **self._bundle_seconds.figures("bundle_seconds")}

    # --------------------------------------------------------- for the role

    def welcome(self, log_end: LogOffset) -> None:
        settings = self._query.settings
        self._connection.send(pack_welcome(settings.window, settings.window_bytes, log_end))

    def follows(self, epoch: Epoch) -> None:
        self._say(Follows(epoch))

    def is_granted(self, promoted: AttachRequest) -> Steps:
        """Ask the supervisor to raise the fence, and wait for it."""
        yield from ()
        hello = replace(self._hello, fence=Fence(promoted.fence), standby=False)
        if not self._is_raised(hello):
            return False
        assert self._host is not None
        self._hello, self._connection.deaf = hello, False
        self._host.promote(hello)
        return True

    def _is_raised(self, hello: Hello) -> bool:
        self._say(AskPromotion(hello))
        while True:
            control = self._control.receive()
            assert control is not None
            message = parse_control(control.message)
            if not isinstance(message, Granted):
                self._words.append(control)
            elif message.cannot is not None:
                raise StorageUnavailable(message.cannot)
            else:
                return message.is_granted

    def at_end(self, epoch: Epoch) -> None:
        assert self._host is not None
        self._say(AtEnd(epoch, None if self._hello.standby else self._figures(self._host)))

    def ended(self, emitted_output: OutputNumber) -> None:
        assert self._host is not None
        self._connection.send(pack_ended(emitted_output, self._host.epoch_report()))

    def _say(self, message: ControlMessage) -> None:
        self._control.send(pack_control(message))

    # -------------------------------------------------------------- waiting

    def _await(self, connection: Connection, host: Host, session: ReplicaSession) -> bool:
        """Wait for a frame; meanwhile, and before it, serve the supervisor and finished background work.

        Whether there is something to read.
        """
        wakeups = host.wakeups()
        watched: list[Any] = [connection, self._control] + ([wakeups] if wakeups is not None else [])
        is_there = connection.buffered or self._control.has_received
        ready = select.select(watched, [], [], 0 if is_there else None)[0]
        if self._control in ready or self._control.has_received:
            for control in self._control.poll():
                message = parse_control(control.message)
                if isinstance(message, Committed):
                    self._commit(message)
                elif isinstance(message, RoundsSaid):
                    self._hear_rounds(message)
                else:
                    self._words.append(control)
                    if isinstance(message, Connect) and session.gives_way:
                        raise ConduitGone("another connection has come")
        if wakeups is not None and wakeups in ready:
            host.finished()
        return connection.buffered or connection in ready


def _kind_of(node: NodeSpec) -> type[OperatorHost | SinkHost]:
    if node.sink is None:
        return OperatorHost
    return SinkHost if node.recovery.replaces else HoldingSinkHost


def _with_those_behind(bundle: Bundle, connection: Connection, session: ReplicaSession) -> Bundle:
    """As one with those that have come and may be taken together with it."""
    bundles, rows = [bundle], bundle.rows
    while connection.buffered_type is FrameType.BUNDLE and session.takes_another(rows):
        behind = parse(connection.next())
        assert isinstance(behind, Bundle)
        bundles.append(behind)
        rows += behind.rows
    return Bundle.joined(bundles) if len(bundles) > 1 else bundle


def main(control: socket.socket, spec_path: str) -> None:
    """The forked child's entry. Returns when the supervisor is gone."""
    try:
        Replica(ControlChannel(control), spec_path).run()
    except ControlClosed:
        os._exit(0)
