"""Causal log stores on local disk, as `clonos.store.log_store` keeps them.

One store per instance: the own log in pieces, and the deltas it received, appended in batches that are there as a whole
or not at all. What `append` has returned from survives the process; what was synced survives the host. A page can be
damaged: the owner then refuses the whole store, a reader passes over the page and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from clonos.core.admission import GENERATION, Fences
from clonos.core.causal_log import CausalLog, Segment
from clonos.core.delta import segments_for, still_needed
from clonos.core.identity import Origin
from clonos.core.own_log import Incarnation, OwnLog
from clonos.core.recovery import HolderReply
from clonos.core.sharing import fold_deltas
from clonos.errors import LogConflict, LogCorrupt, StorageUnavailable


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
        self.incarnations: tuple[Incarnation, ...] = ()
        self._power_may_fail = power_may_fail
        self._on_disk: tuple[list[Batch], tuple[Incarnation, ...]] = ([], ())
        self._not_synced: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def begin(self, fence: int, since: int) -> None:
        """An incarnation goes live here: what it writes from this offset on is its own. It may show a newer fence."""
        self._change(self._begin, fence, since)

    def _begin(self, fence: int, since: int) -> None:
        self.incarnations = (*(one for one in self.incarnations if one[1] != since), (fence, since))

    def _change(self, change: Callable[..., None], *arguments: Any) -> None:
        """One write batch of the write-ahead log, in which RocksDB keeps the order."""
        change(*arguments)
        if self._power_may_fail:
            self._not_synced.append((change, arguments))

    @property
    def own_log(self) -> OwnLog:
        return OwnLog(list(self._own()), self.incarnations)

    def append(self, deltas: tuple[bytes, ...], own: Segment | None) -> None:
        self._check_room()
        pieces: tuple[Segment, ...] = ()
        if own is not None:
            start, data = own
            if start < self.end:
                self._compare(start, data)
                start, data = self.end, data[self.end - start :]
            pieces = ((start, data),) if data else ()
        if deltas or pieces:
            self._change(self._append, deltas, pieces)

    def _append(self, deltas: tuple[bytes, ...], pieces: tuple[Segment, ...]) -> None:
        self._batches.append(Batch(deltas, pieces))

    def _check_room(self) -> None:
        if self.full:
            raise StorageUnavailable(f"no space is left for the causal log of {self.owner}")

    def _compare(self, start: int, data: bytes) -> None:
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
        self._is_on_disk()

    def _is_on_disk(self) -> None:
        if self._power_may_fail:
            self._on_disk = [replace(batch) for batch in self._batches], self.incarnations
            self._not_synced.clear()

    # ------------------------------------------------------------- reading

    @property
    def end(self) -> int:
        return max((start + len(data) for start, data in self._own()), default=0)

    def _own(self) -> Iterator[Segment]:
        return (piece for batch in self._batches for piece in batch.own)

    def open(self) -> tuple[OwnLog, list[bytes]]:
        """For its owner: all or LogCorrupt."""
        if any(batch.damaged for batch in self._batches):
            raise LogCorrupt(f"the causal log of {self.owner} fails a checksum")
        return self.own_log, [raw for batch in self._batches for raw in batch.deltas]

    @property
    def batches(self) -> list[Batch]:
        return self._batches

    @property
    def is_synced(self) -> bool:
        return all(batch.synced for batch in self._batches)

    def readable(self) -> list[Batch]:
        return [batch for batch in self._batches if not batch.damaged]

    def reply(self, origin: Origin, holder: str) -> HolderReply:
        """What can be read here about an instance."""
        segments: list[Segment] = []
        own: tuple[OwnLog, ...] = ()
        if origin == self.owner:
            pieces = [piece for batch in self.readable() for piece in batch.own]
            received = tuple(raw for batch in self.readable() for raw in batch.deltas)
            own = (OwnLog(pieces, self.incarnations, received),)
        required = 0
        for batch in self.readable():
            for raw in batch.deltas:
                found, upto = segments_for(raw, *origin)
                segments += found
                required = max(required, upto)
        corrupt = () if len(self.readable()) == len(self._batches) else (f"the store of {self.owner}",)
        return HolderReply(holder, segments, required, corrupt, own)

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

    def truncate(self, stable: Mapping[Origin, int]) -> None:
        self._change(self._truncate, stable)

    def _truncate(self, stable: Mapping[Origin, int]) -> None:
        own_from = stable.get(self.owner, 0)
        self.incarnations = (
            tuple(one for one in self.incarnations[:-1] if one[1] > own_from) + self.incarnations[-1:]
        )
        for batch in self._batches:
            batch.deltas = tuple(raw for raw in batch.deltas if still_needed(raw, stable))
            batch.own = tuple(piece for piece in batch.own if piece[0] + len(piece[1]) > own_from)
        self._drop_empty()

    def rewrite_own(self, offset: int, pieces: Sequence[Segment]) -> None:
        """Put these in the place of the own log from `offset` on: all or nothing, and durable."""
        self._check_room()
        for batch in self._batches:
            batch.own = tuple((start, data[: offset - start]) for start, data in batch.own if start < offset)
        self._drop_empty()
        if pieces:
            self._batches.append(Batch((), tuple(pieces)))
        self.sync()

    def _drop_empty(self) -> None:
        self.version += 1
        self._batches = [batch for batch in self._batches if batch.deltas or batch.own or batch.damaged]

    # -------------------------------------------------------------- faults

    def lose(self) -> None:
        self.version += 1
        self._batches.clear()
        self.incarnations = ()
        self._is_on_disk()

    def lose_power(self, rng: Random) -> None:
        """Of what was not synced the kernel had written a part, in any order; the store comes back as of some moment
        since then (tests/store/test_log_power.py tries it with RocksDB)."""
        survived = self._not_synced[: rng.randint(0, len(self._not_synced))]
        self.version += 1
        self._batches = [replace(batch) for batch in self._on_disk[0]]
        self.incarnations = self._on_disk[1]
        for change, arguments in survived:
            change(*arguments)
        self.full = False
        self.sync()

    def lose_tail(self, rng: Random) -> None:
        """Writes that were not synced may be gone, the latest first."""
        self.version += 1
        synced = sum(batch.synced for batch in self._batches)
        del self._batches[rng.randint(synced, len(self._batches)) :]
        self._is_on_disk()

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


class Disk:
    """The data directory of a host: a store per instance; fences; what was set aside."""

    def __init__(self, holder: str, *, power_may_fail: bool = False) -> None:
        self.holder = holder
        self.stores: dict[Origin, LogStore] = {}
        self.fences = Fences(self._keep_fence)
        self.set_aside: list[LogStore] = []
        self._power_may_fail = power_may_fail
        self._fence_file: dict[Origin, int] = {}

    def _keep_fence(self, origin: Origin, fence: int) -> None:
        """Synced."""
        self._fence_file[origin] = fence

    def lose(self) -> None:
        """Everything but what the driver tells whoever serves here next."""
        for store in [*self.stores.values(), *self.set_aside]:
            store.lose()
        generation = self._fence_file.get(GENERATION, 0)
        self._fence_file.clear()
        self._fence_file[GENERATION] = generation

    def lose_power(self, rng: Random) -> None:
        """Everything that was not synced may be gone."""
        for store in [*self.stores.values(), *self.set_aside]:
            store.lose_power(rng)

    def open_fences(self) -> None:
        """By whoever serves here next."""
        self.fences = Fences(self._keep_fence, self._fence_file)

    def store(self, origin: Origin) -> LogStore:
        if origin not in self.stores:
            self.stores[origin] = LogStore(origin, power_may_fail=self._power_may_fail)
        return self.stores[origin]

    def put_aside(self, origin: Origin) -> LogStore:
        """A damaged store is not trusted in part."""
        self.set_aside.append(self.stores.pop(origin))
        return self.store(origin)

    def lookup(self, origin: Origin) -> HolderReply:
        """What all directories of this host say about an instance."""
        replies = [store.reply(origin, self.holder) for store in self.stores.values()]
        return HolderReply(
            self.holder,
            [piece for reply in replies for piece in reply.segments],
            max((reply.required for reply in replies), default=0),
            tuple(line for reply in replies for line in reply.corrupt),
            tuple(log for reply in replies for log in reply.own),
        )
