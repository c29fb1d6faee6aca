"""The tab of the Spark UI: there with the first causal query, and alive in a real browser."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from browser import browser_page
from command_lines import processes_of
from streams import Place

SESSION = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
COLUMNS = "id long, v long"


def doubled(place: Place, log: str = "in") -> Any:
    return place.causal(COLUMNS, log).map(lambda row, ctx: (row.id, 2 * row.v), COLUMNS, name="double")


def pages(*places: Place) -> list[str]:
    """The processes that serve these checkpoints."""
    shown = " ".join(f"file:{each.checkpoint}" for each in places)
    return [one for one in processes_of(shown) if " serve " in one]


def test_the_tab_shows_the_queries_of_the_application(spark: Any, tmp_path: Path) -> None:
    root = spark.sparkContext.uiWebUrl
    one, other = (Place(spark, tmp_path / name) for name in ("one", "other"))
    one.start(doubled(one))
    try:
        one.write([{"id": n, "v": n} for n in range(20)])
        one.await_rows(20)
        assert not pages(one), "none before it is looked at"
        with browser_page() as page:
            page.goto(f"{root}/jobs/")
            page.get_by_role("link", name="Clonos", exact=True).click()
            frame = page.frame_locator("iframe[title=Clonos]")
            frame.get_by_text("running", exact=True).wait_for()
            frame.locator("#graph [data-node='double']").wait_for()
            frame.locator("#instances td", has_text="double").first.wait_for()
            other.start(doubled(other))
            frame.locator("nav button[title*=other]").click()
            one.stop()
            frame.locator("nav button[title*=one]").click()
            frame.get_by_text("not running", exact=True).wait_for()
        assert len(pages(one, other)) == 1, "the one before the second query has ended"
        with urllib.request.urlopen(f"{root}/clonos/live/api/queries", timeout=60) as answer:
            shown = json.loads(answer.read())
        assert [query["checkpoint"] for query in shown] == [
            f"file:{each.checkpoint}" for each in (one, other)
        ]
    finally:
        one.stop()
        other.stop()
