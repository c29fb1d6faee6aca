"""Tells input sets what the calls of an operator are given, and how the state of its function changes in them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from clonos.errors import StateError
from clonos.protocol.archive.input_sets import GivenRecord, InputSets, MadeOf, TimerId
from clonos.protocol.ids import RecordId
from clonos.protocol.operator import EntryPlace
from clonos.values.key_codec import pack, unpack
from clonos.values.state_codec import bytes_of

if TYPE_CHECKING:
    from clonos.archive.tracing import TracedCall

_LARGEST_COMPARED: Final = 16_384
"""Bytes. A state that is larger counts as changed by each call, or one that grows would be compared as often as it has
elements."""
_TOO_LARGE: Final = b""


class InputWatch:
    """Of the calls of one operator, one after the other."""

    def __init__(self, sets: InputSets, operator: Any) -> None:
        self._sets = sets
        self._operator = operator
        self._keys: dict[bytes, tuple[Any, ...]] = {}  # of the call
        # By key, a digest of what it had when its last call ended
        self._states: dict[bytes, bytes | None] = {}

    def records(self, call: TracedCall, keys: list[tuple[Any, ...]]) -> None:
        """A call is about to be given records with these keys."""
        data = {key: pack(key) for key in call.keys}
        given = [
            GivenRecord(RecordId(one.channel, one.position), data[key], one.row)
            for one, key in zip(call.inputs, keys, strict=True)
        ]
        self._sets.begin_call(given)
        self._begin({each: key for key, each in data.items()})

    def timers(self, timers: Sequence[TimerId]) -> None:
        self._sets.begin_call(timers=timers)
        self._begin({timer[1]: unpack(timer[1]) for timer in timers})

    def end_of_epoch(self) -> None:
        self._sets.begin_call()
        self._begin({each: unpack(each) for each in self._sets.gathered_keys})

    def ended(self, rows: int) -> list[MadeOf]:
        """The call has given so many rows: what they are of."""
        found = self._sets.end_call(rows)
        if self._sets.through_state:
            for data, key in self._keys.items():
                before, after = self._states.get(data), self._digest(data, key)
                has_changed = after == _TOO_LARGE or after != before
                self._sets.state_is(data, is_there=after is not None, has_changed=has_changed)
                self._states[data] = after
        return found

    def _begin(self, keys: dict[bytes, tuple[Any, ...]]) -> None:
        self._keys = keys
        if not self._sets.through_state:
            return
        for data, key in keys.items():
            if data not in self._states:
                self._states[data] = self._digest(data, key)
            self._sets.state_was(data, is_there=self._states[data] is not None)

    def _digest(self, data: bytes, key: tuple[Any, ...]) -> bytes | None:
        """Of what a user's function keeps for a key; None where that is nothing."""
        if self._sets.place is EntryPlace.UNDER_KEYS:
            return None
        kept = self._operator.kept(key)
        if self._sets.place is EntryPlace.BESIDE_KEYS:
            kept = {at: value for at, value in kept.items() if at == data}
        if not kept:
            return None
        digest, size = hashlib.blake2b(digest_size=16), 0
        for at in sorted(kept):
            try:
                encoded = bytes_of(kept[at])
            except StateError:  # it can still become what can be kept
                return _TOO_LARGE
            size += len(encoded)
            if size > _LARGEST_COMPARED:
                return _TOO_LARGE
            digest.update(len(at).to_bytes(4) + at + encoded)
        return digest.digest()
