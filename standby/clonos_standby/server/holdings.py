"""What one host holds of other instances' pasts, read from the directories of its replicas.

Every replica keeps its own causal log and the deltas it received in `<data>/logs/<node>/<instance>`. The reply to a
request for an instance has what that instance's own directory holds and what all other instances were sent of its log.
The directories are read while their owners append to them, or after they died; either way everything that was
acknowledged before the request is seen. If any of it cannot be read at the moment there is no reply: the request is
refused, and comes again (`clonos.protocol.recovery.causal.holding`).

Many instances recover at once, and each asks about itself, so a directory is read once and indexed by origin; the index
serves as long as the directory's files have not changed, which an append always does to them. What is kept that way is
bounded, and an index that no request has needed for a while is dropped.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from clonos.errors import LogCorrupt, StorageUnavailable
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.holding import HolderReply, Index, told
from clonos.protocol.recovery.causal.own_log import Writer
from clonos.storage import salvage
from clonos.storage.disk_errors import unavailable
from clonos.wire.determinant_service import merged

Signature: TypeAlias = tuple[tuple[str, int, int], ...]

CACHE_BYTES = 256 * 1024 * 1024
_KEEP_SECONDS = 30.0


class Reader(Protocol):
    """What is needed of a LogStore opened for reading."""

    corrupt: list[str]

    @property
    def damaged_before(self) -> str | None: ...

    def own(self) -> Iterable[Segment]: ...

    def deltas(self) -> Iterable[bytes]: ...

    def incarnations(self) -> tuple[Writer, ...] | None: ...


OpenReader: TypeAlias = Callable[[str], AbstractContextManager[Any]]


@dataclass(slots=True)
class _Cached:
    """The index of one directory, as its files were."""

    signature: Signature
    index: Index
    used: float = 0.0


class Holdings:
    """Looks through all directories under `<data>/logs`. Safe to use from several threads."""

    def __init__(
        self,
        logs: Path,
        holder: str,
        open_reader: OpenReader,
        *,
        left_behind: Sequence[Path] = (),
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`left_behind` are folders like `logs` to which no replica writes any more."""
        self._logs = (logs, *left_behind)
        self._holder = holder
        self._open = open_reader
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[str, _Cached] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def lookup(self, origin: Origin, from_offset: LogOffset) -> HolderReply:
        """What this host knows about one instance's log from an offset on. Raises StorageUnavailable where any of it
        cannot be read now."""
        readings = [partial(self._index, directory) for directory in self._directories()]
        reply = told(self._holder, origin, from_offset, readings)
        self._evict()
        return replace(reply, segments=merged(reply.segments))

    def _directories(self) -> Iterator[Path]:
        for logs in self._logs:
            for node in _numbered(logs):
                yield from _numbered(node)

    def _index(self, directory: Path) -> Index:
        name = str(directory)
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            signature = _signature(directory)  # before reading: what is appended meanwhile shows next time
            with self._guard:
                cached = self._cache.get(name)
            if cached is None or cached.signature != signature:
                cached = _Cached(signature, self._read(directory))
            cached.used = time.monotonic()
            with self._guard:
                if cached.index.size <= self._cache_bytes and not cached.index.damaged:
                    self._cache[name] = cached
                    self._cache.move_to_end(name)
                else:
                    self._cache.pop(name, None)
            return cached.index

    def _read(self, directory: Path) -> Index:
        index = Index(_owner(directory))
        acts = salvage.acts(str(directory))
        try:
            with self._open(str(directory)) as reader:
                self._take_all(index, reader, acts)
        except FileNotFoundError:
            pass  # nothing was ever written, or it is just being made
        except LogCorrupt as error:
            index.damage(f"{directory}: {error.message}", acts=acts)
        return index

    def _take_all(self, index: Index, reader: Reader, acts: bool) -> None:
        own, received, incarnations = list(reader.own()), list(reader.deltas()), reader.incarnations()
        before = reader.damaged_before
        for what in [*([before] if before else []), *reader.corrupt]:
            index.damage(what, acts=acts)
        index.take_deltas(received, acts=acts)
        index.take_own(own, incarnations, received)

    def _evict(self) -> None:
        """Drops the indexes used longest ago, beyond the bound; and all that no request has needed lately."""
        now = time.monotonic()
        with self._guard:
            total = sum(cached.index.size for cached in self._cache.values())
            for name, cached in list(self._cache.items()):
                if total <= self._cache_bytes and now - cached.used < _KEEP_SECONDS:
                    break
                total -= cached.index.size
                del self._cache[name]

    def forget_unused(self) -> None:
        self._evict()


def _owner(directory: Path) -> Origin:
    return Origin.of(int(directory.parent.name), int(directory.name))


def _numbered(directory: Path) -> list[Path]:
    """The folders in it that have a number for a name. One that is not there has none."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unavailable(error, f"listing {directory}") from error
    for name in names:
        whole = name.removesuffix(salvage.NEW)
        if whole != name and whole not in names and salvage.being_replaced(str(directory / whole)):
            raise StorageUnavailable(f"{directory / whole} is just being replaced")
    return sorted((directory / name for name in names if name.isdecimal()), key=lambda entry: int(entry.name))


def _signature(directory: Path) -> Signature:
    """Names, sizes and times of the files that hold data; every append changes at least one size. Other files
    are left out, because opening for reading writes some of them."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.name.endswith((".log", ".sst")) and not entry.name.startswith("MANIFEST"):
                    continue
                try:
                    facts = entry.stat()
                except FileNotFoundError:  # compaction has just removed it
                    continue
                found.append((entry.name, facts.st_size, facts.st_mtime_ns))
    except OSError as error:  # also if it was there a moment ago: its replacement comes in its place
        raise unavailable(error, f"looking at {directory}") from error
    return tuple(sorted(found))
