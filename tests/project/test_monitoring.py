"""The alerts and the board of `deploy/`: the programs that load them take them, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from monitoring import ALERT_TESTS, ALERTS, asked_for, board, documented, expressions, families, sample_names
from prometheus_server import program

from clonos_standby.server import metrics
from clonos_standby.server.server_stats import ServerStats
from clonos_standby.service import metrics_page


def pages(tmp_path: Path) -> str:
    """Of a server that has just begun, and of a service without queries."""
    status: Any = {"replicas": [], "spares": [], "waiting": 0, "started": 0.0, "generation": 1}
    server = metrics.render("q", status, ServerStats(tmp_path / "recoveries.jsonl"), {})
    return server + metrics_page.render({"slots": 1, "free": 1, "queries": []}, [])


def test_every_metric_is_documented_and_all_that_is_asked_for_is_there(tmp_path: Path) -> None:
    found = families(pages(tmp_path))
    assert documented() == found.keys()
    assert asked_for() <= sample_names(found)


def promtool(*arguments: str) -> str:
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_alerts() -> None:
    assert "rules found" in promtool("check", "rules", str(ALERTS))


def test_each_alert_fires_at_what_it_is_for_and_at_nothing_else() -> None:
    named = set(re.findall(r"- alert: (\w+)", ALERTS.read_text()))
    assert named == set(re.findall(r'alertname="(\w+)"', ALERT_TESTS.read_text()))
    promtool("test", "rules", str(ALERT_TESTS))


def test_prometheus_takes_what_the_board_asks(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{at}", "expr": each} for at, each in enumerate(expressions())]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(tmp_path / "board.yml"))


def test_grafana_knows_every_field_of_the_board() -> None:
    """By the schema of Grafana's own library: what it does not know, it does not give back."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    plugins.register_default_plugins()
    said = board()
    known = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(said)))
    assert list(differences(said, known, "board")) == []
    identities = [panel["id"] for panel in said["panels"]]
    assert len(identities) == len(set(identities))


def differences(said: Any, known: Any, where: str) -> Any:
    """What of `said` is not in `known`."""
    if isinstance(said, dict) and isinstance(known, dict):
        for name, value in said.items():
            yield from differences(value, known.get(name, KeyError), f"{where}.{name}")
    elif isinstance(said, list) and isinstance(known, list) and len(said) == len(known):
        for at, pair in enumerate(zip(said, known)):
            yield from differences(*pair, f"{where}[{at}]")
    elif said != known:
        yield f"{where}: {said!r} is {known!r}"
