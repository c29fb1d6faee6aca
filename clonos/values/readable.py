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
    """How long something took, with three digits."""
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if microseconds >= size:
            return f"{microseconds / size:,.{max(0, 3 - len(str(microseconds // size)))}f} {unit}"
    return f"{microseconds} us"


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
