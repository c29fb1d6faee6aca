"""What sinks hold of epochs that have committed, as the driver sees to it that it becomes visible.

The processes of sinks show it when they hear of the commit. In micro-batch none may be there, and none may come for
long, as Spark runs no epoch without input: then the driver shows it
(`protocol.roles.query_coordinator.show_committed`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from clonos.protocol.ids import NO_EPOCH, Epoch
from clonos.protocol.recovery.rollback.rounds import Rounds
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.steps import Steps, carry_out
from clonos.testing.faults import FaultInjector
from clonos_standby.cluster.spec import QuerySpec
from clonos_standby.replica.holding_sink_host import HoldingSinkHost

_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""After a sink could not show what it holds, the first time and when that goes on."""


class Show(Protocol):
    """`QueryCoordinator.show_committed`."""

    def __call__(self, committed: Epoch, *, takes_over: bool) -> Steps: ...


class HeldRows:
    """Of one query in one driver. `shown` hears that everything up to an epoch is visible. Where the process of a sink
    has not shown it for `deadline` seconds, the driver does."""

    def __init__(self, show: Show, shown: Callable[[], None], *, deadline: float) -> None:
        self._show = show
        self._shown = shown
        self._deadline = deadline
        self._looked: tuple[Epoch, float] = (
            NO_EPOCH,
            0.0,
        )  # which is awaited, and since when, by the steady clock
        self._changed = threading.Condition()
        self._upto = NO_EPOCH
        self._due = 0.0  # by the steady clock
        self._pause = _PAUSE_SECONDS
        self._error: Exception | None = None  # of the last look
        self._failures = 0
        self._is_over = False

    def look(self, committed: Epoch) -> None:
        """Raises what showing raises."""
        now = time.monotonic()
        if committed <= self._upto or now < self._due:
            return
        if committed != self._looked[0]:
            self._looked = committed, now
        try:
            is_all = carry_out(self._show(committed, takes_over=now - self._looked[1] > self._deadline))
        except Exception as error:
            self._due = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self.has_failed(error)
            raise
        if is_all:
            self._pause = _PAUSE_SECONDS
            self._tell(committed, None)
            self._shown()

    def has_failed(self, error: Exception) -> None:
        """What is to be shown cannot be, or is not known yet to have committed."""
        self._tell(self._upto, error)

    def _tell(self, upto: Epoch, error: Exception | None) -> None:
        with self._changed:
            self._upto, self._error = upto, error
            self._failures += error is not None
            self._changed.notify_all()

    def stop(self) -> None:
        """The query has ended here."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def await_shown(self, committed: Epoch, *, timeout: float | None, tries_on: bool) -> bool:
        """Whether everything up to the epoch is visible. Raises what has kept it from being shown since the call,
        unless it `tries_on`."""
        with self._changed:
            before = self._failures

            def is_over() -> bool:
                has_failed = self._failures > before and not tries_on
                return self._upto >= committed or has_failed or self._is_over

            self._changed.wait_for(is_over, timeout)
            if self._upto < committed and self._error is not None and not tries_on:
                raise self._error
            return self._upto >= committed


def show_held(spec: QuerySpec, data: str, request: AttachRequest, committed: Epoch) -> None:
    """In this process, as the sink's instance; `data` is a folder for what is written meanwhile."""
    node, instance = spec.node(request.origin.node), request.origin.instance
    where = os.path.join(data, "driver")
    faults = FaultInjector((), operator=node.name, instance=instance, marks=Path(where))
    host = HoldingSinkHost(replace(spec, data=where), node, instance, faults)
    try:
        carry_out(host.session.attach(request))
        carry_out(host.session.hear_rounds(Rounds(committed=committed)))
    finally:
        host.close()
