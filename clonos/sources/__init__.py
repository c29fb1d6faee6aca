"""The embedded source: a durable, partitioned log of byte records; Spark reads it as format "clonos"."""

from __future__ import annotations

from clonos.sources.log_writer import LogWriter
from clonos.storage.embedded_log import Record, read

__all__ = ["LogWriter", "Record", "read"]
