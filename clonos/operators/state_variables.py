"""The state variables of transformWithState: `ValueState`, `ListState`, `MapState`, with Spark's methods.

A variable of one grouping key is one kept value: a tuple, a list of tuples, a dict of tuples. What comes out is always
a copy (see `clonos.operators.values`). The order in which a map is iterated is the order of insertion.

With a time to live each value carries the instant at which it expires, by the bundle clock, so expiry is repeated
exactly. Reading skips what has expired; a timer removes it. Invariant: while a variable keeps anything for a key, a
timer is set for the earliest expiry or before; the timer purges and sets itself again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from clonos.errors import StateError
from clonos.operators.migration import Migrate, by_name, migrate_all
from clonos.operators.spark_errors import spark_runtime_error
from clonos.operators.types import columns_of
from clonos.operators.values import has_nan
from clonos.protocol.topology import Columns, StateVariable
from clonos.protocol.versions.state_evolution import Fields
from clonos.values.key_codec import pack

if TYPE_CHECKING:
    from clonos.operators.transform_with_state import StatefulProcessorHandle
    from clonos.operators.values import Codec

TTL_TIMER = "\x00ttl:"


class _Variable:
    """A named variable. Subclasses know the shape of what is kept; `_entries` lists its `[value, expiry]` pairs."""

    _kind = ""
    _doing: ClassVar[Mapping[str, str]] = {}
    """The methods, and how Spark's errors say what they do."""

    def __init__(self, handle: StatefulProcessorHandle, name: str, codec: Codec, ttl_us: int | None) -> None:
        self._handle = handle
        self._name = name
        self._prefix = pack(name)
        self._codec = codec
        self._ttl = ttl_us

    def delete(self) -> None:
        """`deleteIfExists` has removed it: from now on its methods raise what they raise in Spark."""
        for method, doing in self._doing.items():
            setattr(self, method, partial(_raise_deleted, doing, self._name))

    def declared(self) -> StateVariable:
        return StateVariable(
            self._name, self._kind, columns_of(self._codec.schema), self._key_columns, self._ttl
        )

    @property
    def _key_columns(self) -> Columns:
        return ()

    def keep_by_name(self, fields: Fields, before: str) -> None:
        """Keep the values of every key anew, which were kept with these fields."""
        self.migrate(by_name(fields, self._codec.schema.names), before)

    def migrate(self, fn: Migrate, before: str) -> None:
        """Bring the variable of every key up to date; what expires, expires when it would have."""

        def one(entry: Any, version: str) -> Any:
            if self._ttl is None:
                return self._codec.store(fn(entry, version))
            return [self._codec.store(fn(entry[0], version)), entry[1]]

        def migrated(kept: Any, version: str) -> Any:
            return self._each(kept, lambda entry: one(entry, version))

        migrate_all(self._handle.services, self._name, self._prefix, before, migrated, lambda kept: kept)

    def _each(self, kept: Any, change: Callable[[Any], Any]) -> Any:
        """What is kept of one key, with each of its values changed."""
        raise NotImplementedError

    def values_of(self, kept: Any) -> Any:
        """What is kept of one key as the user gave it: a value, a list of them, or a dict."""
        return self._each(kept, self._value)

    def clear(self) -> None:
        """Remove the variable of this key."""
        self._handle.services.state.delete(self._slot())

    def _slot(self) -> bytes:
        return self._prefix + self._handle.key_bytes(f"state variable {self._name!r}")

    def _kept(self, shape: type) -> Any:
        kept = self._handle.services.state.get(self._slot())
        if kept is not None and type(kept) is not shape:
            raise StateError(
                f"what is kept for state variable {self._name!r} is a {type(kept).__name__}, not a {shape.__name__}",
                hint="Its kind or time to live was changed since the checkpoint was written; use another name",
            )
        return kept

    def _keep(self, value: Any, is_new: bool) -> None:
        self._handle.services.state.put(self._slot(), value)
        if is_new and self._ttl is not None:
            self._arm(self._handle.services.clock() + self._ttl)

    def _arm(self, due: int) -> None:
        key = self._handle.key_bytes(self._name)
        self._handle.services.timers.set(due, key, TTL_TIMER + self._name)

    def _wrap(self, value: Any) -> Any:
        """What is kept of one value: itself, or with its expiry."""
        return value if self._ttl is None else [value, self._handle.services.clock() + self._ttl]

    def _alive(self, entry: Any) -> bool:
        if self._ttl is None:
            return True
        if type(entry) is not list or len(entry) != 2:
            raise StateError(
                f"a value kept for state variable {self._name!r} has no time to live",
                hint="The time to live was added since the checkpoint was written; use another name",
            )
        return bool(entry[1] > self._handle.services.clock())

    def _value(self, entry: Any) -> tuple[Any, ...]:
        return self._codec.load(entry if self._ttl is None else entry[0])

    def purge(self) -> None:
        """The timer of the current key is due: drop what has expired and wait for the rest."""
        left = self._unexpired()
        if not left:
            self.clear()
        elif self._ttl is not None:
            self._handle.services.state.put(self._slot(), left[0])
            self._arm(min(left[1]))

    def _unexpired(self) -> tuple[Any, list[int]] | None:
        """What to go on keeping, and when it expires; None if nothing."""
        raise NotImplementedError


class ValueState(_Variable):
    """A single value per key."""

    _kind = "value"
    _doing: ClassVar[Mapping[str, str]] = {
        "exists": "checking value state exists",
        "get": "getting value state",
        "update": "updating value state",
        "clear": "clearing value state",
    }

    def _each(self, kept: Any, change: Callable[[Any], Any]) -> Any:
        return change(kept)

    def exists(self) -> bool:
        return self._entry() is not None

    def get(self) -> tuple[Any, ...] | None:
        """The value, or None."""
        entry = self._entry()
        return None if entry is None else self._value(entry)

    def update(self, newValue: tuple[Any, ...]) -> None:
        if newValue is None:
            raise StateError(f"state variable {self._name!r} cannot be updated with None", hint="Use clear()")
        stored = self._wrap(self._codec.store(newValue))
        self._keep(stored, self._ttl is not None and self._handle.services.state.get(self._slot()) is None)

    def _entry(self) -> Any:
        kept = self._kept(tuple if self._ttl is None else list)
        return kept if kept is not None and self._alive(kept) else None

    def _unexpired(self) -> tuple[Any, list[int]] | None:
        entry = self._entry()
        return None if entry is None else (entry, [entry[1]])


class ListState(_Variable):
    """A list of values per key."""

    _kind = "list"
    _doing: ClassVar[Mapping[str, str]] = {
        "exists": "checking value state exists",
        "get": "getting value state",
        **dict.fromkeys(("put", "appendValue", "appendList"), "updating value state"),
        "clear": "clearing value state",
    }

    def _each(self, kept: Any, change: Callable[[Any], Any]) -> Any:
        return [change(entry) for entry in kept]

    def exists(self) -> bool:
        return any(map(self._alive, self._kept(list) or ()))

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The values in the order in which they were appended."""
        return iter([self._value(entry) for entry in self._kept(list) or () if self._alive(entry)])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        """Replace the list."""
        values = self._store(newState)
        self._keep(values, self._kept(list) is None)

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self.appendList([newState])

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        values = self._store(newState)
        kept = self._kept(list)
        if kept is None:
            self._keep(values, True)
        else:
            kept += values
            self._keep(kept, False)

    def _store(self, values: Any) -> list[Any]:
        if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
            raise StateError(
                f"state variable {self._name!r} takes a list of tuples, not {type(values).__name__}"
            )
        stored = [self._wrap(self._codec.store(v)) for v in values]
        if not stored:
            raise StateError(f"state variable {self._name!r} cannot take an empty list", hint="Use clear()")
        return stored

    def _unexpired(self) -> tuple[Any, list[int]] | None:
        left = [entry for entry in self._kept(list) or () if self._alive(entry)]
        return (left, [entry[1] for entry in left]) if left else None


class MapState(_Variable):
    """A map per key."""

    _kind = "map"
    _doing: ClassVar[Mapping[str, str]] = {
        "exists": "checking map state exists",
        "getValue": "getting value",
        "containsKey": "checking if map state contains key",
        "updateValue": "updating map state value",
        **dict.fromkeys(("iterator", "keys", "values"), "getting map state entries"),
        "removeKey": "removing key from map state",
        "clear": "clearing map state",
    }

    @property
    def _key_columns(self) -> Columns:
        return columns_of(self._keys.schema)

    def _each(self, kept: Any, change: Callable[[Any], Any]) -> Any:
        return {key: change(entry) for key, entry in kept.items()}

    def values_of(self, kept: Any) -> Any:
        return {self._keys.load(key): self._value(entry) for key, entry in kept.items()}

    def __init__(
        self, handle: StatefulProcessorHandle, name: str, key: Codec, value: Codec, ttl_us: int | None
    ) -> None:
        super().__init__(handle, name, value, ttl_us)
        self._keys = key

    def exists(self) -> bool:
        return any(True for _ in self._alive_items())

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The value under a user key, or None."""
        entry = (self._kept(dict) or {}).get(self._key(key))
        return self._value(entry) if entry is not None and self._alive(entry) else None

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        entry = (self._kept(dict) or {}).get(self._key(key))
        return entry is not None and self._alive(entry)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        if key is None or value is None:
            raise StateError(f"state variable {self._name!r} cannot keep None", hint="Use removeKey()")
        stored_key, stored = self._key(key), self._wrap(self._codec.store(value))
        kept = self._kept(dict)
        if kept is None:
            self._keep({stored_key: stored}, True)
        else:
            kept[stored_key] = stored
            self._keep(kept, False)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """(user key, value) pairs."""
        return iter([(self._keys.load(k), self._value(v)) for k, v in self._alive_items()])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._keys.load(k) for k, _ in self._alive_items()])

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter([self._value(v) for _, v in self._alive_items()])

    def removeKey(self, key: tuple[Any, ...]) -> None:
        """Remove a user key, if it is there."""
        kept = self._kept(dict)
        if kept is None or kept.pop(self._key(key), None) is None:
            return
        if kept:
            self._keep(kept, False)
        else:
            self.clear()

    def _key(self, key: Any) -> tuple[Any, ...]:
        stored = self._keys.store(key)
        try:
            hash(stored)
        except TypeError as error:
            raise StateError(f"a key of state variable {self._name!r} cannot be a {error}") from error
        if has_nan(stored):
            # Python finds a NaN again only by its being the same object, which it is not after a restore.
            raise StateError(
                f"a key of state variable {self._name!r} cannot be NaN: {stored!r}",
                hint="Use None, or a string",
            )
        return stored

    def _alive_items(self) -> Iterator[tuple[Any, Any]]:
        return ((k, v) for k, v in (self._kept(dict) or {}).items() if self._alive(v))

    def _unexpired(self) -> tuple[Any, list[int]] | None:
        left = dict(self._alive_items())
        return (left, [entry[1] for entry in left.values()]) if left else None


def _raise_deleted(doing: str, name: str, *_: Any, **__: Any) -> NoReturn:
    raise spark_runtime_error(
        f"Error {doing}: state variable {name!r} is used, and init() has deleted it. Delete only variables that an "
        "earlier version of the processor declared"
    )


def purge_unused(handle: StatefulProcessorHandle, name: str) -> None:
    """A timer is due of a variable that an earlier version declared and this one does not. It may be used again, so
    what has expired goes, and the rest is waited for, as ever."""
    kept = handle.services.state.get(pack(name) + handle.key_bytes(name))
    if not kept:
        return
    no_codec: Any = None  # nothing of it is read
    variable: _Variable
    if type(kept) is dict:
        variable = MapState(handle, name, no_codec, no_codec, 0)
    elif type(kept[0]) is tuple:
        variable = ValueState(handle, name, no_codec, 0)
    else:
        variable = ListState(handle, name, no_codec, 0)
    variable.purge()
