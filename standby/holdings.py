"""What one host holds of other instances' pasts, read from the directories of its replicas.

Every replica keeps its own causal log and the deltas it received in `<data>/logs/<node>/<instance>`. Whoever asks for
an instance gets what that instance's own directory has and what all the others were told about it. The directories are
read while their owners append to them, or after they died; either way everything that was acknowledged before the
request is seen.

Many instances recover at once, and each asks about itself, so a directory is read once and indexed by origin; the index
serves as long as the directory's files have not changed, which an append always does to them. What is kept that way is
bounded, and an index that nobody asks for is dropped.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from clonos.core.delta import decode_delta
from clonos.core.identity import Origin
from clonos.core.own_log import Incarnation, OwnLog
from clonos.core.recovery import HolderReply
from clonos.errors import ClonosError
from clonos.wire.determinant_service import merged

Signature: TypeAlias = tuple[tuple[str, int, int], ...]

CACHE_BYTES = 256 * 1024 * 1024
_KEEP_SECONDS = 30.0


class Reader(Protocol):
    """What is needed of a LogStore opened for reading."""

    corrupt: list[str]

    def own(self) -> Iterable[tuple[int, bytes]]: ...

    def deltas(self) -> Iterable[bytes]: ...

    def incarnations(self) -> tuple[Incarnation, ...] | None: ...


OpenReader: TypeAlias = Callable[[str], AbstractContextManager[Any]]


@dataclass(slots=True)
class _Known:
    """About one origin: pieces of its log and how far somebody depends on it."""

    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    required: int = 0


@dataclass(slots=True)
class _Index:
    """One directory, by origin."""

    signature: Signature
    known: dict[Origin, _Known] = field(default_factory=dict)
    own: OwnLog | None = None  # the owner's, where it may have standbys elsewhere
    corrupt: list[str] = field(default_factory=list)
    bytes: int = 0
    used: float = 0.0


class Holdings:
    """Looks through all directories under `<data>/logs`. Safe to use from several threads."""

    def __init__(
        self, logs: Path, holder: str, open_reader: OpenReader, *, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._logs = logs
        self._holder = holder
        self._open = open_reader
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[str, _Index] = OrderedDict()
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def lookup(self, node: int, instance: int, from_offset: int) -> HolderReply:
        """What this host knows about one instance's log from an offset on."""
        origin = Origin(node, instance)
        pieces: list[tuple[int, bytes]] = []
        required = 0
        corrupt: list[str] = []
        own: list[OwnLog] = []
        for directory in self._directories():
            index = self._index(directory)
            if index.own is not None and _owner(directory) == origin:
                own.append(index.own)
            corrupt += index.corrupt
            known = index.known.get(origin)
            if known is not None:
                required = max(required, known.required)
                pieces += [(start, data) for start, data in known.pieces if start + len(data) > from_offset]
        self._evict()
        return HolderReply(self._holder, merged(pieces), required, tuple(dict.fromkeys(corrupt)), tuple(own))

    def _directories(self) -> Iterator[Path]:
        for node in _numbered(self._logs):
            yield from _numbered(node)

    def _index(self, directory: Path) -> _Index:
        name = str(directory)
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            signature = _signature(directory)  # before reading: what is appended meanwhile shows next time
            with self._guard:
                cached = self._cache.get(name)
            if cached is None or cached.signature != signature:
                cached = self._read(directory, signature)
            cached.used = time.monotonic()
            with self._guard:
                if cached.bytes <= self._cache_bytes and not cached.corrupt:
                    self._cache[name] = cached
                    self._cache.move_to_end(name)
                else:
                    self._cache.pop(name, None)
            return cached

    def _read(self, directory: Path, signature: Signature) -> _Index:
        index = _Index(signature)
        owner = _owner(directory)
        try:
            with self._open(str(directory)) as reader:
                self._take_all(index, owner, reader)
                index.corrupt += reader.corrupt
        except FileNotFoundError:
            pass  # nothing was ever written, or it is just being made
        except ClonosError as error:
            index.corrupt.append(f"{directory}: {error}")
        return index

    def _take_all(self, index: _Index, owner: Origin, reader: Reader) -> None:
        own = list(reader.own())
        index.bytes += sum(len(data) for _, data in own)
        incarnations = reader.incarnations()
        if incarnations is None:
            index.known.setdefault(owner, _Known()).pieces += own
        received = []
        for raw in reader.deltas():
            if incarnations is not None:
                received.append(raw)
                index.bytes += len(raw)
            try:
                entries = decode_delta(raw)
            except ClonosError as error:
                index.corrupt.append(f"a delta kept by {owner}: {error}")
                continue
            for entry in entries:
                known = index.known.setdefault(entry.origin, _Known())
                known.required = max(known.required, entry.end)
                if entry.data is not None:
                    known.pieces.append((entry.start, entry.data))
                    index.bytes += len(entry.data)

        if incarnations is not None:
            index.own = OwnLog(own, incarnations, tuple(received))

    def _evict(self) -> None:
        """Drops the indexes used longest ago, beyond the bound; and all that nobody has asked for lately."""
        now = time.monotonic()
        with self._guard:
            total = sum(index.bytes for index in self._cache.values())
            for name, index in list(self._cache.items()):
                if total <= self._cache_bytes and now - index.used < _KEEP_SECONDS:
                    break
                total -= index.bytes
                del self._cache[name]

    def forget_unused(self) -> None:
        self._evict()


def _owner(directory: Path) -> Origin:
    return Origin(int(directory.parent.name), int(directory.name))


def _numbered(directory: Path) -> list[Path]:
    try:
        found = [entry for entry in directory.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
    return sorted(found, key=lambda entry: int(entry.name))


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
                except OSError:
                    continue
                found.append((entry.name, facts.st_size, facts.st_mtime_ns))
    except OSError:
        return ()
    return tuple(sorted(found))
