"""How state values become bytes.

A value is msgpack, so that it is compact, fast (C) and readable without this library, and so that reading one can
never run code. What plain msgpack would change on the way is carried by extension types, because a value that comes
back as something else makes a replay differ from the original run: a tuple must not return as a list, a numpy float32
must not return as a Python float. What cannot return as exactly what it was is refused with `StateError` when it is
encoded: subclasses (named tuples, enums, ordered dicts), arrays, custom time zones, objects.

    value := plain msgpack | ext(code, payload)
    code  1 tuple       msgpack array
          2 set         msgpack array, items sorted by their encoding, so that equal sets have equal bytes
          3 frozenset   as set
          4 integer beyond 64 bit, two's complement, little-endian
          5 Decimal     UTF-8 text
          6 date        msgpack [year, month, day]
          7 datetime    msgpack [year, ..., microsecond, fold, zone]; zone nil | offset in us | IANA name
          8 time        msgpack [hour, minute, second, microsecond, fold, zone]
          9 timedelta   msgpack [days, seconds, microseconds]
         10 UUID        16 bytes
         11 numpy scalar  msgpack [dtype string, raw bytes]
         12 bytearray   raw bytes
         13 complex     two little-endian doubles

On disk a value is sealed (`clonos.values.sealed_value`).

What no format can keep is that one object is referenced twice, inside a value or from elsewhere, and the order in
which a set has grown. So a user's state is never the user's object: `own` makes what is kept of it, at once and
whatever is cached, and what is handed out again is a copy of that, the same as after a restore. A set comes back built
from its items in the order of their encoding. In which order Python iterates over it is then a function of its items'
hashes, which replicas have in common (they all run with one hash seed), but for items whose hash is an address: None
and NaN are refused in sets.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgpack
import numpy as np

from clonos.errors import StateError
from clonos.values.grouping_keys import FoldedKey

DEEPEST: Final = 64
"""Tuples and sets in each other: reading one takes 40 kB of the C stack for each, and the process dies at its end."""
_COMPLEX: Final = struct.Struct("<dd")

_TUPLE, _SET, _FROZENSET, _INTEGER, _DECIMAL, _DATE, _DATETIME, _TIME = 1, 2, 3, 4, 5, 6, 7, 8
_TIMEDELTA, _UUID, _NUMPY, _BYTEARRAY, _COMPLEX_CODE = 9, 10, 11, 12, 13
_BIN8, _BIN16, _BIN32 = b"\xc4", b"\xc5", b"\xc6"
# Scalars whose bytes say everything about them: booleans, numbers, instants and durations.
_NUMPY_KINDS: Final = "biufcmM"


_FLAT: Final = frozenset({str, int, bool, bytes, type(None)})


class Encoded(bytes):
    """A value that is kept as its bytes."""

    __slots__ = ()


class Flat(dict[Any, Any]):
    """A dict of scalars, kept as a copy."""

    __slots__ = ()


class _Bytearray:
    """Stands for a bytearray while a value that holds one is encoded (see `_without_bytearrays`)."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def encode(value: Any, pack: Callable[[Any], bytes] | None = None) -> bytes:
    """The bytes of `value`; `StateError` naming the type that cannot be kept. `pack` is the caller's `packer()`."""
    pack = pack or _pack
    try:
        packed = pack(value)
        if _BIN8 in packed or _BIN16 in packed or _BIN32 in packed:
            # Only a packed value with these bytes can hold a bytearray, which msgpack would turn into bytes.
            replaced = _without_bytearrays(value)
            if replaced is not value:
                packed = pack(replaced)
        return packed
    except StateError:
        raise
    except RecursionError:
        raise StateError("a state value is nested too deeply, or contains itself") from None
    except (TypeError, ValueError, OverflowError) as error:
        if "recursion" in str(error).lower():
            raise StateError("a state value is nested too deeply, or contains itself") from None
        raise StateError(f"a state value of type {_type_name(value)} cannot be kept: {error}") from error


def own(value: Any, pack: Callable[[Any], bytes] | None = None) -> Any:
    """What to keep of a value that is a user's: nothing that happens to it afterwards reaches it, and nothing in it can
    come back as something else. Give it back with `disowned`.

    A dict of scalars is kept as a shallow copy, everything else as its bytes.
    """
    if type(value) is dict and _is_flat(value):
        return Flat(value)
    return Encoded(encode(value, pack))


def _is_flat(value: dict[Any, Any]) -> bool:
    """Whether nothing in it can change. Plain loops: for a few entries they take half as long as `issuperset`."""
    for key in value:
        if type(key) not in _FLAT:
            return False
    for item in value.values():  # noqa: SIM110 - `all` takes a generator
        # Of a NaN it counts which object it is: `x in [x]`.
        if type(item) not in _FLAT and (type(item) is not float or item != item):
            return False
    return True


def disowned(kept: Any) -> Any:
    """A copy for the user of what `own` keeps, or of any other value."""
    if type(kept) is Flat:
        return kept.copy()  # a plain dict
    return decode(kept if type(kept) is Encoded else encode(kept))


def is_own(kept: Any) -> bool:
    """Whether `own` made it."""
    return type(kept) is Encoded or type(kept) is Flat


def bytes_of(kept: Any, pack: Callable[[Any], bytes] | None = None) -> bytes:
    """The bytes of what `own` keeps, or of any other value."""
    if type(kept) is Encoded:
        return kept
    return encode(kept.copy() if type(kept) is Flat else kept, pack)


def decode(data: bytes) -> Any:
    """The value of `encode`'s bytes; `StateError` where they are none."""
    try:
        return msgpack.unpackb(
            data,
            ext_hook=_from_ext,
            strict_map_key=False,
            use_list=True,
            raw=False,
            unicode_errors="surrogatepass",
        )
    except StateError:
        raise
    except Exception as error:
        raise StateError(f"a kept state value of {len(data)} bytes cannot be read: {error}") from error


def _pack(value: Any, depth: int = 0) -> bytes:
    packed = msgpack.packb(
        value, default=_HOOKS[depth], strict_types=True, use_bin_type=True, unicode_errors="surrogatepass"
    )
    assert isinstance(packed, bytes)
    return packed


def _type_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__


def _to_ext(value: Any, depth: int) -> msgpack.ExtType:
    kind = type(value)
    if kind in _NESTING:
        if depth == DEEPEST:
            raise StateError(
                f"a state value is nested too deeply: more than {DEEPEST} tuples and sets in each other",
                hint="Nest lists and dicts instead, or keep the value flat",
            )
        return _NESTING[kind](value, depth)
    encoder = _ENCODERS.get(kind)
    if encoder is not None:
        return encoder(value)
    # Long doubles (g, G) are left out: their bytes depend on the machine.
    if isinstance(value, np.generic) and value.dtype.kind in _NUMPY_KINDS and value.dtype.char not in "gG":
        little = value.dtype.newbyteorder("<")
        return msgpack.ExtType(_NUMPY, _pack([little.str, value.astype(little).tobytes()]))
    raise StateError(
        f"a state value of type {_type_name(value)} cannot be kept",
        hint="Keep None, bool, int, float, complex, str, bytes, list, dict, tuple, set, date and time types, Decimal, "
        "UUID or numpy scalars; turn anything else into these first",
    )


def packer() -> Callable[[Any], bytes]:
    """What `encode` packs with when it is called often: made once, it is twice as fast. For one thread."""
    pack: Callable[[Any], bytes] = msgpack.Packer(
        default=_HOOKS[0], strict_types=True, use_bin_type=True, unicode_errors="surrogatepass"
    ).pack
    return pack


def _encode_tuple(value: tuple[Any, ...], depth: int) -> msgpack.ExtType:
    return msgpack.ExtType(_TUPLE, _pack(list(value), depth + 1))


def _encode_set(value: set[Any] | frozenset[Any], depth: int) -> msgpack.ExtType:
    for item in value:
        if _hashes_by_address(item):
            raise StateError(
                f"a {type(value).__name__} with {item!r} in it cannot be kept: "
                "another process would iterate over it in another order",
                hint="Keep a list, or a dict with its keys as the items",
            )
    items = sorted(_pack(item, depth + 1) for item in value)
    header = msgpack.Packer().pack_array_header(len(items))
    return msgpack.ExtType(_SET if type(value) is set else _FROZENSET, header + b"".join(items))


def _hashes_by_address(item: Any) -> bool:
    if type(item) is tuple or type(item) is frozenset:
        return any(map(_hashes_by_address, item))
    return item is None or item != item


def _encode_integer(value: int) -> msgpack.ExtType:
    length = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return msgpack.ExtType(_INTEGER, value.to_bytes(length, "little", signed=True))


def _encode_datetime(value: dt.datetime) -> msgpack.ExtType:
    fields = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return msgpack.ExtType(_DATETIME, _pack([*fields, value.fold, _zone(value.tzinfo)]))


def _encode_time(value: dt.time) -> msgpack.ExtType:
    fields = [value.hour, value.minute, value.second, value.microsecond, value.fold, _zone(value.tzinfo)]
    return msgpack.ExtType(_TIME, _pack(fields))


def _zone(zone: dt.tzinfo | None) -> int | str | None:
    if zone is None:
        return None
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        if repr(zone) in (repr(dt.timezone(offset)), repr(dt.UTC)):
            return offset // dt.timedelta(microseconds=1)
    raise StateError(
        f"a time with the time zone {zone!r} cannot be kept",
        hint="Use datetime.UTC, a plain datetime.timezone(offset) or zoneinfo.ZoneInfo(name)",
    )


def _zone_back(zone: int | str | None) -> dt.tzinfo | None:
    if zone is None:
        return None
    if isinstance(zone, str):
        try:
            return ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise StateError(
                f"a kept time needs the time zone {zone!r}, which this host does not know"
            ) from error
    return dt.UTC if zone == 0 else dt.timezone(dt.timedelta(microseconds=zone))


_NESTING: Final[dict[type, Any]] = {
    tuple: _encode_tuple,
    FoldedKey: _encode_tuple,
    set: _encode_set,
    frozenset: _encode_set,
}
_HOOKS: Final = tuple(partial(_to_ext, depth=depth) for depth in range(DEEPEST + 1))
"""What msgpack calls for what it does not know, inside so many tuples and sets."""

_ENCODERS: Final[dict[type, Any]] = {
    int: _encode_integer,
    Decimal: lambda value: msgpack.ExtType(_DECIMAL, str(value).encode()),
    dt.date: lambda value: msgpack.ExtType(_DATE, _pack([value.year, value.month, value.day])),
    dt.datetime: _encode_datetime,
    dt.time: _encode_time,
    dt.timedelta: lambda value: msgpack.ExtType(
        _TIMEDELTA, _pack([value.days, value.seconds, value.microseconds])
    ),
    uuid.UUID: lambda value: msgpack.ExtType(_UUID, value.bytes),
    complex: lambda value: msgpack.ExtType(_COMPLEX_CODE, _COMPLEX.pack(value.real, value.imag)),
    _Bytearray: lambda value: msgpack.ExtType(_BYTEARRAY, value.data),
}


def _decode_datetime(payload: bytes) -> dt.datetime:
    year, month, day, hour, minute, second, microsecond, fold, zone = decode(payload)
    return dt.datetime(year, month, day, hour, minute, second, microsecond, _zone_back(zone), fold=fold)


def _decode_time(payload: bytes) -> dt.time:
    hour, minute, second, microsecond, fold, zone = decode(payload)
    return dt.time(hour, minute, second, microsecond, _zone_back(zone), fold=fold)


def _decode_timedelta(payload: bytes) -> dt.timedelta:
    days, seconds, microseconds = decode(payload)
    return dt.timedelta(days=days, seconds=seconds, microseconds=microseconds)


def _decode_numpy(payload: bytes) -> Any:
    name, data = decode(payload)
    kind = np.dtype(name)
    if kind.kind not in _NUMPY_KINDS or len(data) != kind.itemsize:
        raise StateError(f"a kept numpy value of type {name!r} has {len(data)} bytes")
    return np.frombuffer(data, dtype=kind)[0]


_DECODERS: Final[dict[int, Any]] = {
    _TUPLE: lambda payload: tuple(decode(payload)),
    _SET: lambda payload: set(decode(payload)),
    _FROZENSET: lambda payload: frozenset(decode(payload)),
    _INTEGER: lambda payload: int.from_bytes(payload, "little", signed=True),
    _DECIMAL: lambda payload: Decimal(payload.decode()),
    _DATE: lambda payload: dt.date(*decode(payload)),
    _DATETIME: _decode_datetime,
    _TIME: _decode_time,
    _TIMEDELTA: _decode_timedelta,
    _UUID: lambda payload: uuid.UUID(bytes=payload),
    _NUMPY: _decode_numpy,
    _BYTEARRAY: bytearray,
    _COMPLEX_CODE: lambda payload: complex(*_COMPLEX.unpack(payload)),
}


def _from_ext(code: int, payload: bytes) -> Any:
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise StateError(
            f"a kept state value has the unknown extension type {code}; a newer version may have written it"
        )
    return decoder(payload)


def _without_bytearrays(value: Any) -> Any:
    """`value` itself, or a copy in which each bytearray is marked; memoryviews are refused."""
    kind = type(value)
    if kind is bytearray:
        return _Bytearray(bytes(value))
    if kind is memoryview:
        raise StateError("a state value of type memoryview cannot be kept", hint="Keep bytes(view) instead")
    if kind is list or kind is tuple:
        items = [_without_bytearrays(item) for item in value]
        return value if all(new is old for new, old in zip(items, value)) else kind(items)
    if kind is dict:
        # Keys are hashable, so no key is a bytearray; a hashable memoryview is refused by the walk.
        pairs = [(_without_bytearrays(key), _without_bytearrays(item)) for key, item in value.items()]
        return value if all(new is old for (_, new), old in zip(pairs, value.values())) else dict(pairs)
    if kind is set or kind is frozenset:
        for item in value:
            _without_bytearrays(item)
    return value
