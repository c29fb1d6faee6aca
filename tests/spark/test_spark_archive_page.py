"""The page of a query with an archive, in a real browser: rows are found, and say why."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import browser_page
from streams import Place

pytestmark = pytest.mark.spark

COLUMNS = "k string, n long, card string, drawn double, large long"
LARGE = (1 << 62) + 1


def draw(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["turns"] = ctx.state.get("turns", 0) + 1
    yield row.k, row.n, f"card-{row.n}", ctx.random.random(), LARGE


def keep(row: Any, ctx: Any) -> bool:
    return bool(row.drawn >= 0)


@contextlib.contextmanager
def serving(place: Place, *more: str) -> Iterator[str]:
    """The address that the command says."""
    command = [
        sys.executable,
        "-m",
        "clonos.cli",
        "serve",
        str(place.checkpoint),
        "--port",
        "0",
        "--until-eof",
    ]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [*command, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture
def archived(place: Place) -> Place:
    """Some rows of a query that has ended."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    drawn = place.causal("k string, n long").groupBy("k").process(draw, COLUMNS, name="draw")
    place.start(drawn.filter(keep, name="keep"))
    place.write({"k": f"k{n % 3}", "n": n} for n in range(12))
    place.await_rows(12)
    place.await_commit()
    place.stop()
    return place


def test_rows_are_found_and_explained_in_a_browser(archived: Place) -> None:
    (row,) = [each for each in archived.rows() if each["n"] == 7]
    with serving(archived, "--archive", "--mask", "card") as url, browser_page() as page:
        page.goto(url)
        page.locator("#archived", has_text="keep: epochs 0 to").wait_for()
        assert page.locator("#operator").input_value() == "keep"
        page.locator("#where").fill("k=k1, n=7")
        page.get_by_role("button", name="Find").click()
        page.locator("#found td", has_text=str(LARGE)).wait_for()
        page.get_by_role("button", name=row["clonos_id"], exact=True).click()
        picture = page.locator(f"#explained article[aria-label='row {row['clonos_id']}'] img")
        picture.wait_for()
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300
        page.get_by_text("As text").click()
        text = page.locator("#explained pre").inner_text()
        assert (
            f"drawn={row['drawn']!r}" in text
            and "draw     random()" in text
            and "of       k='k1', n=7" in text
        )
        assert "card='***'" in text and "card-7" not in page.content()
        page.locator("#where").fill("card=card-7")
        page.get_by_role("button", name="Find").click()
        page.get_by_text("values of card are not shown, nor looked for").wait_for()
        page.locator("#where").fill("karl=7")
        page.get_by_role("button", name="Find").click()
        page.locator("#found .error", has_text="has no column karl").wait_for()
        page.locator("#where").fill("k=k9")
        page.get_by_role("button", name="Find").click()
        page.get_by_text("No row had these values.").wait_for()
        page.locator("#where").fill("")
        page.get_by_role("button", name="Find").click()
        page.locator("#found", has_text="12 rows.").wait_for()
        page.locator("#row").fill("3-0-99999")
        page.get_by_role("button", name="Explain").click()
        page.locator("#explained", has_text="its epoch is not in the archive").wait_for()
        assert page.locator("#explained article").count() == 2, "the one before stays"
        page.get_by_role("button", name="close").first.click()
        assert page.locator("#explained article").count() == 1


def test_who_may_not_read_it_is_told_nothing(archived: Place) -> None:
    (row,) = [each["clonos_id"] for each in archived.rows() if each["n"] == 7]

    def answer(url: str, path: str, **headers: str) -> tuple[int, Any]:
        base, _, token = url.partition("?token=")
        if token:
            headers = {"Authorization": f"Bearer {token}", **headers}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(base + path, headers=headers), timeout=120
            ) as found:
                return found.status, json.load(found)
        except urllib.error.HTTPError as error:
            return error.code, None

    explain = f"api/queries/0/explain?row={row}"
    with serving(archived, "--archive") as url:
        base = url.partition("?")[0]
        assert answer(base, explain)[0] == 401
        assert answer(url, explain, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
        status, said = answer(url, explain)
        assert status == 200 and said["id"] == row
        assert "is no id of a row" in answer(url, "api/queries/0/explain?row=--help")[1]["error"]
        assert answer(url, "api/queries/0/nothing")[0] == 404
    with serving(archived, "--archive", "--mask", "crad") as url:
        assert "no row of the query has a column crad" in answer(url, "api/queries/0/archive")[1]["error"]
        assert "no row of the query has a column crad" in answer(url, explain)[1]["error"]
        assert "crad" in answer(url, "api/queries/0/rows?operator=draw")[1]["error"]
    for path in (archived.checkpoint / "clonos" / "archive" / "segments" / "2").glob("*/*.segment"):
        path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    with serving(archived, "--archive", "--mask", "CARD") as url:
        said = answer(url, "api/queries/0/rows?operator=draw")[1]
        assert said["rows"] == [] and "damaged" in said["lacking"][0]
        said = answer(url, "api/queries/0/rows?operator=keep&where=n%3D7")[1]
        assert [one["row"]["card"] for one in said["rows"]] == ["***"]
    with serving(archived) as url:
        assert "token" not in url
        assert answer(url, "api/queries/0/archive") == (200, {"operators": []})
        assert answer(url, explain)[0] == 404
        with browser_page() as page:
            page.goto(url)
            page.get_by_text("not running", exact=True).wait_for()
            assert not page.locator("#archive").is_visible()
