"""Batches of rows for the function of a `foreachBatch`: cut behind a commit, written down, given, noted as given.

    <folder>/<node>.batch       JSON, sealed: the last batch, where its rows begin and end in each file, whether the
                                function has had it

A batch is written down before the function is called. After a failure it is given again, under the same number and
with the same rows, for the files only grow (`clonos.sinks.batch_sink`). When the function has had it, its bytes are
given back to the file system where that can be done; the length of a file stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from clonos.errors import ClonosError, QueryDefinitionError, StorageUnavailable, UserFunctionError
from clonos.spark.failure import translate
from clonos.storage.durable_files import replace_file
from clonos.storage.embedded_log import MAGIC, read_from
from clonos.storage.hole import punch
from clonos.storage.sealed import sealed, unsealed

LOG = logging.getLogger("clonos")

_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """`begins` and `ends` are positions in the files, in their order."""

    number: int
    begins: list[int]
    ends: list[int]
    is_given: bool


class BatchFiles:
    """Where a sink's rows are, and how far they have been given. `check_leads` raises Fenced where another driver gives
    them now: what that has written down stays."""

    def __init__(
        self, files: list[Path], state: str | Path, check_leads: Callable[[], None] = lambda: None
    ) -> None:
        self._files = files
        self._state = Path(state)
        self._check_leads = check_leads

    def next(self) -> tuple[Batch, list[bytes]] | None:
        """The batch that is to be given, and its rows: the last one again, if it is not known to have been given, or
        what has come since. None where nothing has."""
        last = self._last()
        if not last.is_given:
            return last, self._rows(last.begins, last.ends)
        found = [list(read_from(file, begin)) for file, begin in zip(self._files, last.ends, strict=True)]
        if not any(found):
            return None
        ends = [rows[-1][0] if rows else begin for rows, begin in zip(found, last.ends, strict=True)]
        batch = Batch(last.number + 1, last.ends, ends, False)
        self._write(batch)
        return batch, [payload for rows in found for _, payload in rows]

    def given(self, batch: Batch) -> None:
        self._write(Batch(batch.number, batch.begins, batch.ends, True))
        for file, begin, end in zip(self._files, batch.begins, batch.ends, strict=True):
            punch(file, begin, end)

    def _rows(self, begins: list[int], ends: list[int]) -> list[bytes]:
        found = []
        for file, begin, end in zip(self._files, begins, ends, strict=True):
            found += [payload for _, payload in read_from(file, begin, end)]
        return found

    def _last(self) -> Batch:
        if not self._state.exists():
            begins = [len(MAGIC)] * len(self._files)
            return Batch(-1, begins, begins, True)
        return Batch(**unsealed(self._state.read_bytes(), str(self._state)))

    def _write(self, batch: Batch) -> None:
        self._check_leads()
        replace_file(self._state, sealed(asdict(batch)))


class BatchDelivery:
    """Calls the function after each commit, one batch after the other, in a thread of its own. `frame` makes a
    DataFrame of rows; `failed` hears of what the function raises, after which it is not called any more."""

    def __init__(
        self,
        files: BatchFiles,
        fn: Callable[[Any, int], object],
        frame: Callable[[list[bytes]], Any],
        failed: Callable[[ClonosError], None],
    ) -> None:
        self._files = files
        self._fn = fn
        self._frame = frame
        self._failed = failed
        self._error: ClonosError | None = None
        self._giver: threading.Thread | None = None
        self._committed = threading.Event()
        self._stopping = threading.Event()
        self._giving = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="clonos-batches", daemon=True)

    def start(self) -> None:
        """Also what an earlier start has left is given then."""
        self._committed.set()
        self._thread.start()

    def tell_commit(self) -> None:
        self._committed.set()

    def stop(self) -> None:
        """A call that is under way ends first, unless it is the caller."""
        self._stopping.set()
        self._committed.set()
        if self._thread.is_alive() and not self.is_here():
            self._thread.join()

    def is_here(self) -> bool:
        """Whether the caller is in the thread that calls the function."""
        return threading.current_thread() is self._thread

    def drain(self) -> None:
        """Give all that is there. Raises what the function raises, as a UserFunctionError, also later; OSError and
        ClonosError where files cannot be read or written."""
        if self._giver is threading.current_thread():
            raise QueryDefinitionError(
                "the function of foreachBatch waits for itself: it asks for all that is there to be processed",
                hint="Call processAllAvailable() outside of it",
            )
        with self._giving:
            if self._error is not None:
                raise self._error
            self._giver = threading.current_thread()
            try:
                while not self._stopping.is_set() and (due := self._files.next()) is not None:
                    batch, rows = due
                    self._give(batch, rows)
                    self._files.given(batch)
            finally:
                self._giver = None

    def _run(self) -> None:
        while True:
            self._committed.wait()
            self._committed.clear()
            if self._stopping.is_set():
                return
            try:
                self.drain()
            except (OSError, StorageUnavailable) as error:
                LOG.warning("a batch cannot be read or noted now, and is tried again: %s", error)
                self._stopping.wait(_PAUSE_SECONDS)
                self._committed.set()
            except Exception as error:
                self._failed(translate(error))
                return

    def _give(self, batch: Batch, rows: list[bytes]) -> None:
        try:
            self._fn(self._frame(rows), batch.number)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._error = UserFunctionError(
                f"the function of foreachBatch raised {type(error).__name__} for batch {batch.number}: {error}",
                hint="It is called again with the same rows under the same number when the query is started again",
            )
            raise self._error from error
