"""What a Spark checkpoint location names, as Hadoop reads it: nothing in it is escaped."""

from __future__ import annotations

import os

from clonos.errors import ConfigurationError


def on_this_host(location: str) -> str | None:
    """The path that a location means, a path or a file: URI; None where it has another scheme. Raises
    ConfigurationError."""
    if not location:
        raise ConfigurationError("the checkpoint location is empty")
    scheme, colon, rest = location.partition(":")
    # One letter before the colon is a drive, not a scheme.
    if not colon or "/" in scheme or len(scheme) < 2:
        return os.path.abspath(location)
    if scheme.lower() != "file":
        return None
    authority, path = parts_of(rest)
    if authority not in ("", "//"):
        raise ConfigurationError(
            f"the checkpoint location {location!r} names a host, which Spark does not take",
            hint=f"Use file://{path}",
        )
    if not path.startswith("/"):
        raise ConfigurationError(
            f"the checkpoint location {location!r} is a relative path in a URI, which Spark does not take",
            hint="Use the path alone, or an absolute one",
        )
    return os.path.abspath("/" + path.lstrip("/"))


def parts_of(rest: str) -> tuple[str, str]:
    """Of what stands behind a scheme: the authority with its slashes, if there is one, and the path."""
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return f"//{authority}", slash + path
