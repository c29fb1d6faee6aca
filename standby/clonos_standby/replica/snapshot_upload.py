"""Snapshots that are stored in the background, while their instance goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from clonos.storage.snapshots import PendingSnapshot, SnapshotStore


class Upload:
    """A snapshot on its way to checkpoint storage."""

    def __init__(
        self, store: SnapshotStore, pending: PendingSnapshot, before: Callable[[], None] | None = None
    ) -> None:
        """`before` is what has to be durable before the snapshot is."""
        self._before = before
        self._store = store
        self._pending = pending
        self._told = threading.Event()
        self.error: Exception | None = None
        self.cost = 0.0  # processor time, in seconds

    def carry_out(self) -> None:
        began = time.thread_time()
        try:
            if self._before is not None:
                self._before()
            self._store.store(self._pending)
        except Exception as error:  # the instance's thread raises it
            self.error = error
        self.cost = time.thread_time() - began

    def is_told(self) -> None:
        """Its instance has been woken: who waits for it need not look for that."""
        self._told.set()

    def join(self) -> None:
        """Returns when it has ended, and its instance has been woken."""
        self._told.wait()


class Uploads:
    """Carries them out one after the other, in a thread of its own, which begins with the first: where checkpoints
    follow each other without a pause, a thread for each costs more than to store it. `wake` is written to when one has
    ended."""

    def __init__(self, wake: int) -> None:
        self._wake = wake
        self._due: SimpleQueue[Upload] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(
        self, store: SnapshotStore, pending: PendingSnapshot, before: Callable[[], None] | None = None
    ) -> Upload:
        """It is stored from now on, `before` being done first."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
            self._thread.start()
        upload = Upload(store, pending, before)
        self._due.put(upload)
        return upload

    def _run(self) -> None:
        while True:
            upload = self._due.get()
            upload.carry_out()
            os.write(self._wake, b"x")
            upload.is_told()
