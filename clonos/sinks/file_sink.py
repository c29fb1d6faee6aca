"""What all sinks have in common that keep their log in files: fences, commit records and trimming."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch
from clonos.protocol.line.kept_commit import KeptCommit
from clonos.sinks.patience import Patience, check_patience
from clonos.sinks.sink_wal import SinkWalReader, last_commit, raise_floor, read_floor, record_commit, trim
from clonos.sinks.wal_format import Kind


class FileSink(ABC):
    """The part of `clonos.sinks.port.Sink` that needs nothing but the place of the log."""

    moved_by: ClassVar[Kind]
    """The kind of record that moves the cursors."""

    def __init__(self, *, patience: float, durable: bool) -> None:
        self._patience = check_patience(patience)
        self._durable = durable

    @property
    @abstractmethod
    def _base(self) -> str:
        """The directory of the logs of all queries."""

    def raise_fence(self, query: str, fence: Fence) -> None:
        Patience(self._patience).run(lambda _: raise_floor(self._base, query, fence, durable=self._durable))

    def standing_fence(self, query: str) -> Fence:
        return Patience(self._patience).run(lambda _: read_floor(self._base, query))

    def log_reader(self, query: str) -> SinkWalReader:
        return SinkWalReader(self._base, query, moved_by=self.moved_by)

    def record_commit(self, query: str, fence: Fence, epoch: Epoch, record: bytes) -> None:
        kept = KeptCommit(fence, epoch, record)
        Patience(self._patience).run(lambda _: record_commit(self._base, query, kept, durable=self._durable))

    def last_commit(self, query: str) -> tuple[Epoch, bytes] | None:
        return Patience(self._patience).run(lambda _: last_commit(self._base, query))

    def truncate(self, query: str, fence: Fence, keep: Callable[[bytes], bool]) -> int:
        return trim(self._base, query, fence, keep, Patience(self._patience), durable=self._durable)
