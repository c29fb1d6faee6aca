"""Snapshots that are stored in the background: one after the other, and who waits for one finds that it was told."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from clonos.errors import StorageUnavailable
from clonos_standby.replica import snapshot_upload
from clonos_standby.replica.snapshot_upload import Uploads


class Store:
    """It takes whatever it is given, and raises what is an error."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def store(self, pending: Any) -> None:
        self.threads.append(threading.get_ident())
        if isinstance(pending, Exception):
            raise pending


def test_when_one_has_ended_its_instance_has_been_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    wake_read, wake = os.pipe()
    os.set_blocking(wake_read, False)
    may_wake, real = threading.Event(), os.write

    def late(descriptor: int, data: bytes) -> int:
        if descriptor == wake:
            may_wake.wait()
        return real(descriptor, data)

    monkeypatch.setattr(snapshot_upload.os, "write", late)
    store: Any = Store()
    upload = Uploads(wake).begin(store, None)  # type: ignore[arg-type]
    ended = threading.Thread(target=upload.join)
    ended.start()
    with pytest.raises(BlockingIOError):
        os.read(wake_read, 1)
    assert ended.is_alive()
    may_wake.set()
    ended.join()
    assert os.read(wake_read, 8) == b"x"


@pytest.mark.parametrize("error", [StorageUnavailable("full"), ValueError("a bug")])
def test_one_thread_stores_them_and_an_error_is_that_of_its_snapshot(error: Exception) -> None:
    _, wake = os.pipe()
    store: Any = Store()
    uploads = Uploads(wake)
    done = [uploads.begin(store, pending) for pending in (None, error, None)]  # type: ignore[arg-type]
    for upload in done:
        upload.join()
    assert [upload.error for upload in done] == [None, error, None]
    assert len(set(store.threads)) == 1 and threading.get_ident() not in store.threads
