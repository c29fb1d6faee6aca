"""Grouping keys as bytes, and back.

State and timers are kept under bytes. MessagePack is self-delimiting, so keys may be concatenated (variable, grouping
key, user key) without one ever being the prefix of another by accident; and a timer's key is turned back into the
tuple that the user's function expects. Types that MessagePack lacks travel as extensions.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgpack

from clonos.errors import InputError, StateError
from clonos.protocol.operator import Services
from clonos.values.grouping_keys import FoldedKey, key_of

_DATETIME, _DATE, _DECIMAL, _DELTA, _FOLDED = 1, 2, 3, 4, 5


def pack(value: Any) -> bytes:
    """A key (a tuple of plain values) as bytes; equal keys give equal bytes, others others."""
    extend = _extend_folded if type(value) is FoldedKey else _extend
    try:
        return msgpack.packb(value, default=extend, use_bin_type=True)  # type: ignore[no-any-return]
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the key {value!r} cannot be kept: {error}") from error


def unpack(data: bytes) -> Any:
    """The key tuple of `pack`."""
    try:
        found = _tuples(msgpack.unpackb(data, ext_hook=_restore, raw=False, strict_map_key=False))
        return key_of(found) if isinstance(found, tuple) else found
    except (ValueError, TypeError, ArithmeticError) as error:
        raise StateError(f"a kept key cannot be read ({data[:40]!r}): {error}") from error


def unpack_each(data: bytes) -> list[Any]:
    """What several calls of `pack` have made, one behind the other."""
    try:
        unpacker = msgpack.Unpacker(ext_hook=_restore, raw=False, strict_map_key=False)
        unpacker.feed(data)
        found = [_tuples(each) for each in unpacker]
        is_whole = unpacker.tell() == len(data)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise StateError(f"a kept key cannot be read ({data[:40]!r}): {error}") from error
    if not is_whole:
        raise StateError(f"a kept key cannot be read ({data[:40]!r}): it is cut off")
    return [key_of(each) if isinstance(each, tuple) else each for each in found]


def kept_under(services: Services, data: bytes) -> dict[bytes, Any]:
    """What the keyed state holds under exactly this key."""
    value = services.state.get(data)
    return {} if value is None else {data: value}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _extend_folded(value: Any) -> Any:
    if isinstance(value, datetime) and value.fold:
        return msgpack.ExtType(_FOLDED, value.isoformat().encode())
    return _extend(value)


def _extend(value: Any) -> Any:
    if isinstance(value, datetime):
        # Without `fold`, which only a `FoldedKey` tells.
        return msgpack.ExtType(_DATETIME, value.isoformat().encode())
    if isinstance(value, date):
        return msgpack.ExtType(_DATE, value.isoformat().encode())
    if isinstance(value, Decimal):
        return msgpack.ExtType(_DECIMAL, str(value).encode())
    if isinstance(value, timedelta):
        return msgpack.ExtType(_DELTA, str(value // timedelta(microseconds=1)).encode())
    raise TypeError(f"{type(value).__name__} is not a type for keys")


def _restore(code: int, data: bytes) -> Any:
    text = data.decode()
    if code == _DATETIME:
        return datetime.fromisoformat(text)
    if code == _FOLDED:
        return datetime.fromisoformat(text).replace(fold=1)
    if code == _DATE:
        return date.fromisoformat(text)
    if code == _DECIMAL:
        return Decimal(text)
    if code == _DELTA:
        return timedelta(microseconds=int(text))
    raise ValueError(f"unknown extension {code}")
