"""What sinks hold of epochs that have committed, as the driver sees to it that it becomes visible.

The processes of sinks show it when they hear of the commit. In micro-batch none may be there, and none may come for
long, as Spark runs no epoch without input: then the driver shows it
(`protocol.roles.query_coordinator.show_committed`), in a thread of its own, as a sink may keep it waiting.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from clonos.errors import ClonosError, Fenced
from clonos.protocol.ids import Epoch
from clonos.protocol.roles.attach_request import AttachRequest
from clonos.protocol.roles.awaited_rows import AwaitedRows
from clonos.protocol.roles.holding_sink_session import HoldingSinkSession
from clonos.protocol.roles.steps import Steps, carry_out
from clonos.testing.faults import FaultInjector
from clonos_standby.cluster.spec import QuerySpec
from clonos_standby.replica.holding_sink_host import HoldingSinkHost

_POLL_SECONDS: Final = 0.1
"""While processes of sinks show what they hold."""
_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
"""After a sink could not show what it holds, the first time and when that goes on."""


class Show(Protocol):
    """`QueryCoordinator.show_committed`."""

    def __call__(self, committed: Epoch, *, takes_over: bool) -> Steps: ...


class HeldRows:
    """Of one query in one driver. `shown` hears that everything up to an epoch is visible, `failed` what keeps the
    driver from showing it, and is to say so here (`has_failed`). Where the process of a sink has not shown it for
    `deadline` seconds, the driver does."""

    def __init__(
        self, show: Show, *, shown: Callable[[], None], failed: Callable[[Exception], None], deadline: float
    ) -> None:
        self._show = show
        self._shown = shown
        self._failed = failed
        self._changed = threading.Condition()
        self._awaited = AwaitedRows(deadline=deadline)
        self._pause = _PAUSE_SECONDS
        self._last: Exception | None = None
        self._failures = 0
        self._ends_at: float | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="clonos-held-rows", daemon=True)

    def tell(self, committed: Epoch) -> None:
        """It is recorded to have committed."""
        with self._changed:
            if self._awaited.commit(committed, time.monotonic()):
                self._changed.notify_all()
        if self._thread.ident is None:
            self._thread.start()

    def has_failed(self, error: Exception) -> None:
        """What is to be shown cannot be, or cannot be recorded to have committed."""
        with self._changed:
            self._last = error
            self._failures += 1
            self._changed.notify_all()

    def end_within(self, seconds: float) -> None:
        """Whoever waits does not wait for longer."""
        with self._changed:
            self._ends_at = time.monotonic() + seconds
            self._changed.notify_all()

    def stop(self) -> None:
        """The query has ended here. An attempt to show something that is under way ends first."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def await_shown(self, committed: Epoch, *, tries_on: bool) -> bool:
        """Whether everything up to the epoch is visible. Raises what has kept it from being shown since the call; where
        it `tries_on`, only what will not pass."""
        with self._changed:
            before = self._failures

            def stands_against() -> Exception | None:
                may_pass = isinstance(self._last, ClonosError) and self._last.retryable
                return None if self._failures == before or (tries_on and may_pass) else self._last

            while self._awaited.visible < committed and not self._is_over:
                if (error := stands_against()) is not None:
                    raise error
                left = None if self._ends_at is None else self._ends_at - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            return self._awaited.visible >= committed

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._awaited.are_due)
                committed = self._awaited.committed
            if self._is_over:
                return
            try:
                pause = self._look(committed)
            except Fenced:  # another driver leads
                with self._changed:
                    self._is_over = True
                    self._changed.notify_all()
                return
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, pause)

    def _look(self, committed: Epoch) -> float:
        """How long to wait before the next time."""
        takes_over = self._awaited.takes_over(time.monotonic())
        try:
            is_all = carry_out(self._show(committed, takes_over=takes_over))
        except Fenced:
            raise
        except Exception as error:
            self._failed(error)
            pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
            return pause
        if is_all:
            self._pause = _PAUSE_SECONDS
            with self._changed:
                self._awaited.visible = committed
                self._changed.notify_all()
            self._shown()
        return _POLL_SECONDS


def show_held(spec: QuerySpec, data: str, request: AttachRequest, committed: Epoch) -> None:
    """In this process, as the sink's instance; `data` is a folder for what is written meanwhile."""
    node, instance = spec.node(request.origin.node), request.origin.instance
    where = os.path.join(data, "driver")
    faults = FaultInjector((), operator=node.name, instance=instance, marks=Path(where))
    host = HoldingSinkHost(replace(spec, data=where), node, instance, faults)
    assert isinstance(host.session, HoldingSinkSession)
    try:
        carry_out(host.session.show_committed(request, committed))
    finally:
        host.close()
