"""How far the sources of a query are behind: what Spark has said of them behind the last batch, as the driver keeps it
in the data directory (`org.clonos.spark.progress.SourcesFile`).

A source says it or does not: Kafka in offsets, the embedded log in bytes. In real time a batch is long, and what is
said as old.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clonos.json_text import parsed_json

FILE: Final = "sources.json"
_VERSION: Final = 1
_KAFKA_MEAN: Final = "avgOffsetsBehindLatest"
_BYTES: Final = "bytesBehindLatest"


def sources_of(data: Path) -> list[dict[str, Any]]:
    """`node`, `at` (when that was known, in seconds since 1970), `behind` in `unit`: `records` or `bytes`; both None
    where the source does not say. Empty where nothing is known yet."""
    try:
        said = parsed_json((data / FILE).read_bytes())
        if said["version"] != _VERSION:
            return []
        return [
            {"node": each["node"], "at": said["at"], **_behind(each["progress"])} for each in said["sources"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _behind(progress: Mapping[str, Any]) -> dict[str, Any]:
    metrics = progress.get("metrics") or {}
    if _KAFKA_MEAN in metrics:
        partitions = [parts for parts in (progress.get("endOffset") or {}).values() if parts is not None]
        return {"behind": round(float(metrics[_KAFKA_MEAN]) * sum(map(len, partitions))), "unit": "records"}
    if _BYTES in metrics:
        return {"behind": int(metrics[_BYTES]), "unit": "bytes"}
    return {"behind": None, "unit": None}
