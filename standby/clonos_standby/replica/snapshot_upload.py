"""A snapshot that is stored in the background, while its instance goes on."""

from __future__ import annotations

import os
import threading
import time

from clonos.errors import ClonosError
from clonos.storage.snapshots import PendingSnapshot, SnapshotStore


class Upload(threading.Thread):
    """A snapshot on its way to checkpoint storage."""

    def __init__(self, store: SnapshotStore, pending: PendingSnapshot, wake: int) -> None:
        super().__init__(name="snapshot", daemon=True)
        self._store = store
        self._pending = pending
        self._wake = wake
        self.error: ClonosError | None = None
        self.cost = 0.0
        self.start()

    def run(self) -> None:
        try:
            self._store.finish(self._pending)
        except ClonosError as error:
            self.error = error
        self.cost = time.thread_time()
        os.write(self._wake, b"x")
