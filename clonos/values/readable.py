"""Times and keys for people and programs to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clonos.errors import ClonosError
from clonos.values.key_codec import unpack

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> str:
    """A clock reading, UTC."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{microseconds} us"


def key_said(data: bytes) -> Any:
    """A key of the keyed state as it was before it became bytes; those of variables are several in one."""
    try:
        return unpack(data)
    except ClonosError:
        return data.hex()
