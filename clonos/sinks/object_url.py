"""URLs of places in object stores."""

from __future__ import annotations

import posixpath
from typing import Final
from urllib.parse import unquote, urlsplit

from clonos.errors import QueryDefinitionError

SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})


def is_object_url(place: object) -> bool:
    return isinstance(place, str) and urlsplit(place).scheme in SCHEMES


def checked_url(url: str) -> str:
    """Without slashes at its end. Raises QueryDefinitionError."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise QueryDefinitionError(
            f"{url!r} is no place in an object store", hint="Give a URL such as s3://bucket/path"
        )
    if (
        not parts.netloc
        or parts.query
        or parts.fragment
        or ("@" in parts.netloc and parts.scheme in ("s3", "s3a"))
    ):
        raise QueryDefinitionError(
            f"{url!r} does not name a bucket and a path alone",
            hint="Give s3://bucket/path; endpoint and keys go into options={...}, or stand in the environment",
        )
    return url.rstrip("/")


def canonical(url: str) -> tuple[str, str]:
    """Bucket and path, the same for each way of writing one place."""
    parts = urlsplit(url)
    return parts.netloc, posixpath.normpath(f"/{unquote(parts.path)}/").lstrip("/")
