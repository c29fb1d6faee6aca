"""URLs of places in object stores."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

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
    if not parts.netloc or parts.query or parts.fragment or ("@" in parts.netloc and parts.scheme == "s3"):
        raise QueryDefinitionError(
            f"{url!r} does not name a bucket and a path alone",
            hint="Give s3://bucket/path; endpoint and keys go into options={...}, or stand in the environment",
        )
    return url.rstrip("/")
