"""Spark's own rights apply to the tab: who may not see the application sees neither the tab nor what is behind it."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streams import Place

FILTER = "org.apache.spark.deploy.yarn.AmIpFilter"  # Spark's own, which takes the user's name from its proxy
SESSION = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.filters": FILTER,
    f"spark.{FILTER}.param.PROXY_HOSTS": "127.0.0.1",
    f"spark.{FILTER}.param.PROXY_URI_BASES": "http://127.0.0.1:1/proxy",
    "spark.acls.enable": "true",
    "spark.ui.view.acls": "alice",
}
COLUMNS = "id long, v long"
PATIENCE_S = 120.0


def status(root: str, path: str, user: str) -> int:
    place = urlsplit(root)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Cookie": f"proxy-user={user}"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_user_without_the_right_sees_neither_the_tab_nor_the_page_behind_it(
    spark: Any, tmp_path: Path
) -> None:
    root = spark.sparkContext.uiWebUrl
    place = Place(spark, tmp_path)
    place.start(place.causal(COLUMNS).map(lambda row, ctx: (row.id, row.v), COLUMNS, name="same"))
    try:
        for path in ("/clonos/", "/clonos/live/", "/clonos/live/api/queries", "/clonos/live/api/queries/0"):
            assert status(root, path, "mallory") == 403, path
            assert status(root, path, "alice") == 200, path
    finally:
        place.stop()
