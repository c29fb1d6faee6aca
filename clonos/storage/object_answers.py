"""What errors of an object store's client say."""

from __future__ import annotations

import re
from typing import Final

_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
"""Of S3, Azure and Google, which clients do not tell from an object that is not there."""
_STORE_SAYS: Final = re.compile(r"<(?:Code|Message)>([^<]*)<")


def is_no_bucket(error: BaseException) -> bool:
    return any(code in str(error) for code in _NO_BUCKET)


def in_short(error: BaseException) -> str:
    """The first line of what the library says, which goes on with an account of its own, and what the store says."""
    text = str(error)
    first = text.partition("\n")[0].partition("<?xml")[0].rstrip(" :")
    return ": ".join([first, *_STORE_SAYS.findall(text.partition("Debug source")[0])])
