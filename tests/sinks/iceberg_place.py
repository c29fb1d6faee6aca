"""An Iceberg table in a catalog of its own, as its readers see it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

TABLE = "shop.decisions"


def sqlite_catalog(folder: Path) -> dict[str, str]:
    """Properties of a catalog in a file, with its tables beside it."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{warehouse}"}


def read_table(catalog: Mapping[str, str], table: str = TABLE) -> list[dict[str, Any]]:
    with closing(load_catalog("default", **catalog)) as opened:
        try:
            found = opened.load_table(table).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
    return list(found)
