"""What Spark's session knows of the object store of a location, as the library's own client takes it.

Spark reaches `s3a://` by Hadoop's settings `fs.s3a.*`, of all buckets or of one (`fs.s3a.bucket.<name>.*`). Where a
session has keys or an endpoint there, the library uses the same, in the driver and in replicas; what it does not have
comes from each process's environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from clonos.storage.location import parts_of
from clonos.storage.object_store import SCHEMES, Options, name_of

_NAMES: Final = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
_REGIONAL: Final = re.compile(r"\bs3[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z]+)+-\d+)\.amazonaws\.")


def store_settings(location: str, setting: Callable[[str], str | None]) -> dict[str, Options]:
    """By the store's name; `setting` looks up one of Hadoop's settings. Empty where it is not of S3."""
    scheme, _, rest = location.partition(":")
    if SCHEMES.get(scheme.lower()) != "s3":
        return {}
    bucket = parts_of(rest)[0].removeprefix("//")

    def look(name: str) -> str:
        return (setting(f"fs.s3a.bucket.{bucket}.{name}") or setting(f"fs.s3a.{name}") or "").strip()

    found = {ours: value for theirs, ours in _NAMES.items() if (value := look(theirs))}
    if not found.keys() >= {"access_key_id", "secret_access_key"}:  # a half of a pair is none
        found = {name: value for name, value in found.items() if name == "region"}
    endpoint = look("endpoint")
    if endpoint:
        plain = look("connection.ssl.enabled").lower() == "false"
        found["endpoint"] = (
            endpoint if "://" in endpoint else f"{'http' if plain else 'https'}://{endpoint}"
        ).rstrip("/")
        regional = _REGIONAL.search(endpoint)
        if regional is not None:
            found.setdefault("region", regional[1])
        if look("path.style.access").lower() == "true":
            found["virtual_hosted_style_request"] = "false"
    return {name_of(scheme, bucket): found}
