"""Times and keys for people and programs to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clonos.errors import ClonosError
from clonos.values.grouping_keys import key_of
from clonos.values.key_codec import unpack_each

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> str:
    """A clock reading, UTC."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{microseconds} us"


def span(microseconds: int) -> str:
    """How long something took, with three digits; of seconds all."""
    for unit, size in (("us", 1), ("ms", 1_000)):
        rounded = float(f"{microseconds / size:.3g}")
        if rounded < 1000:
            return f"{rounded:g} {unit}"
    seconds = microseconds / 1_000_000
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"


def key_said(data: bytes) -> Any:
    """A key of the keyed state as it was before it became bytes; what is kept under a name has that behind it."""
    try:
        found = unpack_each(data)
    except ClonosError:
        return data.hex()
    match found:
        case [key]:
            return key
        case [str() as name, tuple() as key]:
            return key_of((*key, name))
    return data.hex()
