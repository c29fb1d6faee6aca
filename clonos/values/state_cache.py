"""The cache in front of keyed state: the live Python objects, and when they become bytes.

There are two ways to it. *The runtime's own objects*, made of plain values that no other code refers to: `get` decodes
an object once and hands out the same object while it is cached; `put` and `touch` only mark its key. A dirty object is
encoded when it leaves the cache or when a checkpoint is taken, never per record. *A user's objects*, to whose parts the
user's function may have other references: `save` keeps what they are at that moment, `load` gives a copy of that, as a
restore would (`clonos.values.state_codec.own`). So what a user sees depends neither on what is cached nor on when it is
written.

The cache has two generations. New and used-again keys are in the young one; when that fills the cache it becomes the
old one, and from then on each key that comes in pushes an old one out, oldest first. So a hot key is found in one
lookup, a key that is not used for a while leaves, and the work of making room is spread evenly: there is no pause in
which half a cache is written.

How many entries fit is bounded by number and, by the encoded sizes seen so far, by bytes.

What a caller may rely on must not depend on what happens to be cached, since after a restore nothing is:

- An object from `get` stays *the* object for at least half as many other keys as the cache holds. `touch`
  of a key that is no longer cached is refused: the change would be lost.
- `scan` yields the keys that exist when it begins, with the values that they have when it reaches them, and leaves out
  those deleted in between.
`None` as a value means absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, Protocol

from clonos.errors import SnapshotCorrupt, StateError
from clonos.protocol.engine.epoch_counts import StateChanges
from clonos.values.sealed_value import seal, unseal
from clonos.values.state_codec import Encoded, bytes_of, decode, disowned, is_own, own, packer

MIB: Final = 1 << 20
_BATCH_BYTES: Final = MIB
_MIN_ENTRIES: Final = 4
_MAX_OVERLAY: Final = 64
_FIRST_LIMIT: Final = 1024
_SAMPLE: Final = 16
_PIECE_ENTRIES: Final = 128
_PIECE_BYTES: Final = 64 * 1024
# A decoded object takes a multiple of its encoding, plus its share of the dicts and the key.
_BYTES_PER_ENCODED: Final = 6
_BYTES_PER_ENTRY: Final = 250


class Backing(Protocol):
    """Where the bytes are."""

    def get(self, key: bytes) -> bytes | None: ...

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        """Put these, all or none; None deletes."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What is kept under keys that begin so, in their order, as it is now."""
        ...


class StateCache:
    """See the module. Used from one thread."""

    def __init__(self, backing: Backing, *, cache_entries: int, cache_bytes: int = 64 * MIB) -> None:
        if cache_entries < _MIN_ENTRIES:
            raise StateError(f"the state cache needs at least {_MIN_ENTRIES} entries, not {cache_entries}")
        self._backing = backing
        self._pack = packer()
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}
        self._leaving: Iterator[bytes] = iter(())
        self._dirty: set[bytes] = set()
        self._max_entries = cache_entries
        self._cache_bytes = cache_bytes
        self._limit = min(cache_entries, _FIRST_LIMIT)
        self._average = 0.0
        # Counts entries written behind the cache, so that a scan knows whether its view may be out of date.
        self._written = 0
        self.changes = StateChanges()

    def get(self, key: bytes) -> Any | None:
        """The object kept under `key`, the same one while it is cached; None if there is none."""
        value = self._young.get(key)
        if value is None:
            value = self._get_slowly(key)
        if is_own(value):
            value = self._young[key] = disowned(value)
        return value

    def load(self, key: bytes) -> Any | None:
        """A copy of what is kept under `key`, the caller's own; None if there is nothing."""
        kept = self._young.get(key)
        if kept is None:
            kept = self._get_slowly(key)
        return None if kept is None else disowned(kept)

    def save(self, key: bytes, value: Any) -> None:
        """Keep what `value` is now; what becomes of it is of no consequence. Raises StateError if it cannot be kept."""
        self.put(key, None if value is None else own(value, self._pack))

    def put(self, key: bytes, value: Any) -> None:
        """Keep `value` under `key`; None deletes."""
        if key in self._young:
            self._young[key] = value
        else:
            self._admit(key, value)
        self._dirty.add(key)
        if value is None:
            self.changes.removed += 1
        else:
            self.changes.updated += 1

    def touch(self, key: bytes) -> None:
        """The object that `get` returned was changed in place."""
        if key not in self._young:
            if key not in self._old:
                raise StateError(
                    f"the state of key {key!r} was changed after it had left the cache",
                    hint="Get it again before changing it, put it explicitly, or use a larger state cache",
                )
            self._admit(key, self._old[key])
        self._dirty.add(key)
        self.changes.updated += 1

    def delete(self, key: bytes) -> None:
        """Forget what is kept under `key`, if anything."""
        self.put(key, None)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, Any]]:
        """Keys that start with `prefix`, in order, with their values. See the module on changes meanwhile.

        An object that is not cached is not cached by a scan: to change it, `get` it or `put` it.
        """
        # Each scan looks at all that is dirty. Where scans are frequent, write it: then each change is looked at once.
        if len(self._dirty) > _MAX_OVERLAY:
            self.flush()
        overlay = sorted(
            (key, (self._young if key in self._young else self._old)[key] is not None)
            for key in self._dirty
            if key.startswith(prefix)
        )
        return self._merge(overlay, self._backing.scan(prefix), self._written)

    def _merge(
        self, overlay: list[tuple[bytes, bool]], stored: Iterator[tuple[bytes, bytes]], written: int
    ) -> Iterator[tuple[bytes, Any]]:
        waiting = iter(overlay)
        dirty = next(waiting, None)
        for key, data in stored:
            while dirty is not None and dirty[0] < key:
                if dirty[1] and (value := self._peek(dirty[0])) is not None:
                    yield dirty[0], value
                dirty = next(waiting, None)
            existed = True
            if dirty is not None and dirty[0] == key:
                existed = dirty[1]
                dirty = next(waiting, None)
            if existed and (value := self._peek(key, data if written == self._written else None)) is not None:
                yield key, value
        while dirty is not None:
            if dirty[1] and (value := self._peek(dirty[0])) is not None:
                yield dirty[0], value
            dirty = next(waiting, None)

    def _peek(self, key: bytes, data: bytes | None = None) -> Any | None:
        """The current value without caching it; `data` is what is stored, where that is known."""
        if key in self._young or key in self._old:
            kept = self._young[key] if key in self._young else self._old[key]
            return disowned(kept) if is_own(kept) else kept
        if data is None:
            data = self._backing.get(key)
        return None if data is None else self.value_of(key, data)

    def value_of(self, key: bytes, data: bytes) -> Any:
        """The value of what is stored under a key. Raises SnapshotCorrupt."""
        return decode(self._unsealed(key, data))

    def _unsealed(self, key: bytes, data: bytes) -> Encoded:
        return Encoded(unseal(data, key, what=f"the state of key {key!r}", corrupt=SnapshotCorrupt))

    def _get_slowly(self, key: bytes) -> Any | None:
        if key in self._young:
            return None
        if key in self._old:
            value = self._old[key]
        else:
            if type(key) is not bytes:
                raise StateError(f"a state key must be bytes, not {type(key).__name__}")
            data = self._backing.get(key)
            if data is None:
                return None
            value = self._unsealed(key, data)
            self._note_size(len(data))
        self._admit(key, value)
        return value

    def _admit(self, key: bytes, value: Any) -> None:
        """Take a key into the young generation."""
        if type(key) is not bytes:
            raise StateError(f"a state key must be bytes, not {type(key).__name__}")
        # Making room may fail (a full disk): nothing has changed for `key` by then.
        if len(self._young) >= self._limit:
            self._turn()
        excess = len(self._young) + len(self._old) - self._limit
        if excess >= 0 and key not in self._old:
            self._evict(2 if excess else 1)
        self._young[key] = value
        self._old.pop(key, None)

    def _turn(self) -> None:
        """The young generation fills the cache: let the cache grow if it may, else what is young becomes old."""
        for sampled in islice(reversed(self._young), _SAMPLE):
            value = self._young[sampled]
            if value is not None:
                self._note_size(len(self._encode(sampled, value)))
        per_entry = self._average * _BYTES_PER_ENCODED + _BYTES_PER_ENTRY
        allowed = max(_MIN_ENTRIES, min(self._max_entries, int(self._cache_bytes / per_entry)))
        if allowed > len(self._young):
            self._limit = min(allowed, 2 * len(self._young))
            return
        self._limit = allowed
        # Nothing is left there unless the cache has just shrunk.
        self._evict(len(self._old))
        self._old, self._young = self._young, {}
        self._leaving = iter(list(self._old))

    def _note_size(self, size: int) -> None:
        self._average = size if self._average == 0.0 else self._average + (size - self._average) / 16

    def _evict(self, count: int) -> None:
        """Let up to `count` of the oldest entries go, writing those that changed."""
        while count > 0 and self._old:
            key = next(self._leaving, None)
            if key is None:
                self._leaving = iter(list(self._old))
                continue
            if key not in self._old:
                continue
            count -= 1
            # Written first, removed after: if it cannot be encoded or written, it is still here.
            if key in self._dirty:
                self._write_one(key, self._old[key])
                self._dirty.discard(key)
            del self._old[key]

    def _write_one(self, key: bytes, value: Any) -> None:
        self._backing.write({key: None if value is None else self._encode(key, value)})
        self._written += 1

    def _encode(self, key: bytes, value: Any) -> bytes:
        try:
            return seal(bytes_of(value, self._pack), key)
        except StateError as error:
            raise StateError(f"the state of key {key!r}: {error.message}", hint=error.hint) from error

    def flush(self) -> None:
        """Write every dirty entry; the objects stay cached."""
        changes: dict[bytes, bytes | None] = {}
        size = 0
        for key in sorted(self._dirty):
            data = changes[key] = self._bytes_of(key)
            size += len(key) + len(data or b"")
            if size >= _BATCH_BYTES:
                self._backing.write(changes)
                changes, size = {}, 0
        if changes:
            self._backing.write(changes)
        self._written += 1
        self._dirty.clear()

    def _bytes_of(self, key: bytes) -> bytes | None:
        value = self._young[key] if key in self._young else self._old[key]
        return None if value is None else self._encode(key, value)

    def write_piece(self, keys: Iterator[bytes]) -> bool:
        """Write some of these where they are still dirty; whether there were any."""
        changes: dict[bytes, bytes | None] = {}
        size = 0
        for key in keys:
            if key not in self._dirty:
                continue
            data = changes[key] = self._bytes_of(key)
            size += len(key) + len(data or b"")
            if len(changes) >= _PIECE_ENTRIES or size >= _PIECE_BYTES:
                break
        if changes:
            self._backing.write(changes)
            self._written += 1
            self._dirty.difference_update(changes)
        return bool(changes)

    @property
    def dirty(self) -> list[bytes]:
        """The keys that are to be written."""
        return list(self._dirty)
