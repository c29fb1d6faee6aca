"""What `deploy/` asks of the metrics, and what docs/operations.md says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy/prometheus/clonos-alerts.yml"
ALERT_TESTS = ROOT / "deploy/prometheus/clonos-alerts-test.yml"
BOARD = ROOT / "deploy/grafana/clonos.json"
OPERATIONS = ROOT / "docs/operations.md"
_NAME = re.compile(r"\bclonos_\w+")


def board() -> dict[str, Any]:
    said: dict[str, Any] = json.loads(BOARD.read_text())
    return said


def expressions() -> Iterator[str]:
    """Of the board's panels, for all queries and operators."""
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            found = target["expr"].replace("$__rate_interval", "1m")
            yield found.replace("$query", ".*").replace("$operator", ".*")


def asked_for() -> set[str]:
    """Names of samples in the board and the alerts."""
    rules = "\n".join(
        line for line in ALERTS.read_text().splitlines() if not line.strip().startswith(("#", "desc"))
    )
    variables = [str(each["query"]) for each in board()["templating"]["list"]]
    return set(_NAME.findall("\n".join([rules, *expressions(), *variables])))


def documented() -> set[str]:
    """Names of metrics in the table of docs/operations.md, as a page has them."""
    text = OPERATIONS.read_text().split("| metric, after `clonos_`", 1)[1].split("\n\n", 1)[0]
    cells = [line.split("|")[1] for line in text.splitlines()[2:]]
    return {f"clonos_{name}" for cell in cells for name in re.findall(r"`(\w+)", cell)}


def families(page: str) -> dict[str, str]:
    """Names of metrics on a page, with their types."""
    found = (line.split()[2:] for line in page.splitlines() if line.startswith("# TYPE"))
    return dict(found)


def sample_names(families: dict[str, str]) -> set[str]:
    """What samples of these may be called."""
    more = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
    return {f"{name}{suffix}" for name, kind in families.items() for suffix in more.get(kind, ("",))}
