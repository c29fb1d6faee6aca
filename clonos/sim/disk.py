"""Causal log stores on local disk, as `clonos.storage.log_store` keeps them.

One store per instance: the own log in pieces, and the deltas it received, appended in batches that are there as a whole
or not at all. What `append` has returned from survives the process; what was synced survives the host. A page can be
damaged: a reader passes over it and says so; the owner puts what can be read in the place of the store. A directory may
also be unreadable for a while to the determinant service that answers from it: then there is no reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from clonos.errors import LogConflict, LogCorrupt, StorageUnavailable
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment, pieces_before
from clonos.protocol.recovery.causal.delta import still_needed
from clonos.protocol.recovery.causal.delta_journal import fold_deltas
from clonos.protocol.recovery.causal.holding import Damage, HolderReply, Index, told
from clonos.protocol.recovery.causal.own_log import OwnLog, Writer, begun, truncated
from clonos.protocol.recovery.causal.retrieval import OpenedLog
from clonos.protocol.roles.admission import GENERATION, Fences
from clonos.protocol.roles.crash_marks import Marks
from clonos.protocol.roles.membership import sets_aside


@dataclass(slots=True)
class Batch:
    """What one `append` wrote."""

    deltas: tuple[bytes, ...]
    own: tuple[Segment, ...]
    synced: bool = False
    damaged: bool = False


class LogStore:
    """The store of one instance."""

    def __init__(self, owner: Origin, *, power_may_fail: bool = False) -> None:
        self.owner = owner
        self.full = False
        self.version = 0  # counts what was not an append
        self._batches: list[Batch] = []
        self.incarnations: tuple[Writer, ...] | None = None  # kept where there are standbys
        self.acts = False  # its owner has acted on the outside
        self.damaged_before = False  # it is in the place of one of which only a part could be read
        self.whole_since: LogOffset | None = None
        self.unreadable_until = 0
        self._power_may_fail = power_may_fail
        self._on_disk: tuple[list[Batch], tuple[Writer, ...] | None] = ([], None)
        self._not_synced: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        # The incarnations that began behind a batch which is not synced: they are lost only together with it.
        self._begun_behind: list[tuple[Batch, tuple[Writer, ...] | None]] = []

    def begin(self, incarnation: Writer) -> None:
        """As `clonos.storage.log_store.LogStore.begin`."""
        self._change(self._begin, incarnation)

    def _begin(self, incarnation: Writer) -> None:
        if self._batches and not self._batches[-1].synced:
            self._begun_behind.append((self._batches[-1], self.incarnations))
        self.incarnations = begun(self.incarnations or (), incarnation)

    def _change(self, change: Callable[..., None], *arguments: Any) -> None:
        """One write batch of the write-ahead log, in which RocksDB keeps the order."""
        change(*arguments)
        if self._power_may_fail:
            self._not_synced.append((change, arguments))

    @property
    def own_log(self) -> OwnLog:
        return OwnLog(list(self._own()), self.incarnations or ())

    def append(self, deltas: Sequence[bytes], own: Segment | None) -> None:
        self._check_room()
        pieces: tuple[Segment, ...] = ()
        if own is not None:
            start, data = own
            if start < self.end:
                self._compare(start, data)
                start, data = self.end, data[self.end - start :]
            pieces = ((start, data),) if data else ()
        if deltas or pieces:
            self._change(self._append, tuple(deltas), pieces)

    def _append(self, deltas: tuple[bytes, ...], pieces: tuple[Segment, ...]) -> None:
        self._batches.append(Batch(deltas, pieces))

    def _check_room(self) -> None:
        if self.full:
            raise StorageUnavailable(f"no space is left for the causal log of {self.owner}")

    def _compare(self, start: LogOffset, data: bytes) -> None:
        for known_start, known in self._own():
            low, high = max(start, known_start), min(start + len(data), known_start + len(known))
            if (
                low < high
                and data[low - start : high - start] != known[low - known_start : high - known_start]
            ):
                raise LogConflict(f"the own log of {self.owner} already has other bytes from offset {low} on")

    def sync(self) -> None:
        for batch in self._batches:
            batch.synced = True
        self._begun_behind.clear()
        self._is_on_disk()

    def _is_on_disk(self) -> None:
        if self._power_may_fail:
            self._on_disk = [replace(batch) for batch in self._batches], self.incarnations
            self._not_synced.clear()

    # ------------------------------------------------------------- reading

    @property
    def end(self) -> LogOffset:
        return max((log_after(*piece) for piece in self._own()), default=LOG_BEGIN)

    def _own(self) -> Iterator[Segment]:
        return (piece for batch in self._batches for piece in batch.own)

    def open(self) -> OpenedLog:
        """For its owner: all or LogCorrupt."""
        if any(batch.damaged for batch in self._batches):
            raise LogCorrupt(f"the causal log of {self.owner} fails a checksum")
        damaged = (Damage("what was here before", self.owner, self.acts),) if self.damaged_before else ()
        held = [raw for batch in self._batches for raw in batch.deltas]
        return OpenedLog(self.own_log, held, damaged, self.whole_since)

    def is_whole(self, since: LogOffset) -> None:
        self.whole_since, self.damaged_before = since, False
        self.sync()

    def salvaged(self) -> LogStore:
        """What can be read of it, for its place."""
        new = LogStore(self.owner, power_may_fail=self._power_may_fail)
        new._batches = [Batch(batch.deltas, batch.own, synced=True) for batch in self.readable()]
        new.incarnations, new.acts, new.damaged_before = self.incarnations, self.acts, True
        new.sync()
        return new

    @property
    def batches(self) -> list[Batch]:
        return self._batches

    @property
    def is_synced(self) -> bool:
        return all(batch.synced for batch in self._batches)

    @property
    def is_damaged(self) -> bool:
        """Or in the place of one that was."""
        return self.damaged_before or len(self.readable()) < len(self._batches)

    def readable(self) -> list[Batch]:
        return [batch for batch in self._batches if not batch.damaged]

    def index(self, now: int) -> Index:
        """What a determinant service answers from. Raises StorageUnavailable."""
        if now < self.unreadable_until:
            raise StorageUnavailable(f"the store of {self.owner} cannot be read now")
        index = Index(self.owner)
        if self.is_damaged:
            index.damage(f"the store of {self.owner}", acts=self.acts)
        received = [raw for batch in self.readable() for raw in batch.deltas]
        index.take_deltas(received, acts=self.acts)
        index.take_own(
            [piece for batch in self.readable() for piece in batch.own], self.incarnations, received
        )
        return index

    # ---------------------------------------------------------- forgetting

    def fold(self) -> None:
        """What one batch after another has brought, made one. Nothing of it is forgotten."""
        self._change(self._fold)

    def _fold(self) -> None:
        if any(batch.damaged for batch in self._batches):
            return
        synced = [batch for batch in self._batches if batch.synced]
        fresh = [batch for batch in self._batches if not batch.synced]
        self._batches = [_folded(batches) for batches in (synced, fresh) if batches]
        self.version += 1

    def truncate(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        self._change(self._truncate, truncation_points)

    def _truncate(self, truncation_points: Mapping[Origin, LogOffset]) -> None:
        own_from = truncation_points.get(self.owner, LOG_BEGIN)
        if self.incarnations:
            self.incarnations = truncated(self.incarnations, own_from)
        for batch in self._batches:
            batch.deltas = tuple(raw for raw in batch.deltas if still_needed(raw, truncation_points))
            batch.own = tuple(piece for piece in batch.own if piece[0] + len(piece[1]) > own_from)
        self._drop_empty()

    def rewrite_own(
        self, offset: LogOffset, pieces: Sequence[Segment], copied_by: Writer | None = None
    ) -> None:
        """As `clonos.storage.log_store.LogStore.rewrite_own`: all or nothing, and durable."""
        self._check_room()
        if copied_by is not None:
            self._begin(copied_by)
        for batch in self._batches:
            batch.own = tuple(pieces_before(batch.own, offset))
        self._drop_empty()
        if pieces:
            self._batches.append(Batch((), tuple(pieces)))
        self.sync()

    def _drop_empty(self) -> None:
        self.version += 1
        self._batches = [batch for batch in self._batches if batch.deltas or batch.own or batch.damaged]

    # -------------------------------------------------------------- faults

    def copy(self) -> LogStore:
        """For a host that is started with it: from when on it is whole is not known then."""
        copied = LogStore(self.owner, power_may_fail=self._power_may_fail)
        copied._batches = [replace(batch) for batch in self._batches]
        copied.incarnations, copied.acts = self.incarnations, self.acts
        copied.damaged_before = self.damaged_before
        copied._is_on_disk()
        return copied

    def lose(self) -> None:
        self.version += 1
        self._batches.clear()
        self.incarnations = None
        self.acts = self.damaged_before = False
        self.whole_since = None
        self._is_on_disk()

    def lose_power(self, rng: Random, *, torn: bool) -> None:
        """The kernel had written a part of what was not synced, in any order; the store comes back as of some moment
        since then (tests/storage/test_power_failure.py tries it with RocksDB). One that is torn has zeros from there
        on, with or without something behind them: that cannot be told from damage, and nothing behind it is read."""
        survived = self._not_synced[: rng.randint(0, len(self._not_synced))]
        self.version += 1
        self._batches = [replace(batch) for batch in self._on_disk[0]]
        self.incarnations = self._on_disk[1]
        self.whole_since = None
        whole = len(survived) == len(self._not_synced)
        for change, arguments in survived:
            change(*arguments)
        if torn and not whole:
            self._batches.append(Batch((), (), damaged=True))
        self.full = False
        self.sync()

    def lose_tail(self, rng: Random) -> None:
        """Writes that were not synced may be gone, the latest first; what is there after that is on disk."""
        self.version += 1
        self.whole_since = None
        synced = sum(batch.synced for batch in self._batches)
        kept = rng.randint(synced, len(self._batches))
        lost = {id(batch) for batch in self._batches[kept:]}
        self.incarnations = next(
            (before for batch, before in self._begun_behind if id(batch) in lost), self.incarnations
        )
        del self._batches[kept:]
        self.sync()

    def damage(self, rng: Random) -> bool:
        if not self._batches:
            return False
        rng.choice(self._batches).damaged = True
        return True


def _folded(batches: list[Batch]) -> Batch:
    deltas = [raw for batch in batches for raw in batch.deltas]
    own = CausalLog()
    for batch in batches:
        for piece in batch.own:
            own.merge(*piece)
    return Batch((fold_deltas(deltas),) if deltas else (), tuple(own), batches[0].synced)


class MarkFile:
    """The crash marks of one instance, as `clonos_standby.server.crash_mark_file` keeps them."""

    def __init__(self) -> None:
        self._kept: Marks | None = None

    def read(self) -> Marks | None:
        return self._kept

    def write(self, marks: Marks) -> None:
        self._kept = marks

    def remove(self) -> None:
        self._kept = None


class Disk:
    """The data directory of a host: a store per instance; fences; what was set aside."""

    def __init__(self, holder: str, *, power_may_fail: bool = False) -> None:
        self.holder = holder
        self.stores: dict[Origin, LogStore] = {}
        self.fences = Fences(self._keep_fence)
        self.set_aside: list[LogStore] = []
        self.marks: defaultdict[Origin, MarkFile] = defaultdict(MarkFile)
        self._power_may_fail = power_may_fail
        self._fence_file: dict[Origin, Fence] = {}
        self._fences_on_disk: dict[Origin, Fence] = {}
        self._copy: tuple[list[LogStore], dict[Origin, Fence], str | None] = ([], {}, None)
        self._membership: str | None = None
        self.times_set_aside = 0
        self.times_restored = 0

    def _keep_fence(self, origin: Origin, fence: Fence) -> None:
        self._fence_file[origin] = fence
        self._sync_fences()

    def _sync_fences(self) -> None:
        self._fences_on_disk = dict(self._fence_file)

    def lose(self) -> None:
        """Lose everything but the generation, which the driver tells the next server on this host."""
        for store in [*self.stores.values(), *self.set_aside]:
            store.lose()
        generation = self._fence_file.get(GENERATION, LOWEST_FENCE)
        self._fence_file = {GENERATION: generation}
        self.marks.clear()
        self._sync_fences()
        self._membership = None

    def is_asked_under(self, token: str) -> None:
        """By a driver whose query may have gone on without this host (`protocol.roles.membership`)."""
        if sets_aside(self._membership, token):
            self.times_set_aside += 1
            for store in [*self.stores.values(), *self.set_aside]:
                store.lose()
        self._membership = token

    def lose_power(self, rng: Random, tears: Callable[[LogStore], bool]) -> None:
        """Everything that was not synced may be gone; which stores it tears besides."""
        for store in [*self.stores.values(), *self.set_aside]:
            store.lose_power(rng, torn=tears(store))
        self._fence_file = dict(self._fences_on_disk)
        self.marks.clear()

    def back_up(self) -> None:
        """What `restore` brings back."""
        stores = [store.copy() for store in self.stores.values()]
        self._copy = stores, dict(self._fence_file), self._membership

    def restore(self) -> None:
        """Everything is as it was once."""
        self.times_restored += 1
        stores, fences, self._membership = self._copy
        for store in self.stores.values():
            store.lose()
        self.stores = {store.owner: store.copy() for store in stores}
        self._fence_file = dict(fences)
        self._sync_fences()
        self.marks.clear()

    def open_fences(self) -> None:
        """Read the fences again, for the next server on this host."""
        self.fences = Fences(self._keep_fence, self._fence_file)

    def store(self, origin: Origin) -> LogStore:
        if origin not in self.stores:
            self.stores[origin] = LogStore(origin, power_may_fail=self._power_may_fail)
        return self.stores[origin]

    def put_aside(self, origin: Origin) -> LogStore:
        """A damaged store is not written on: what can be read of it is put in its place."""
        damaged = self.stores.pop(origin)
        self.set_aside.append(damaged)
        self.stores[origin] = damaged.salvaged()
        return self.stores[origin]


def lookup(disks: Sequence[Disk], origin: Origin, now: int) -> HolderReply:
    """What all directories of these say about an instance, in the name of the first. Raises StorageUnavailable."""
    readings = [partial(store.index, now) for disk in disks for store in disk.stores.values()]
    return told(disks[0].holder, origin, LOG_BEGIN, readings)
