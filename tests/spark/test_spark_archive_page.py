"""The page of a query with an archive, in a real browser: rows are found, and say why."""

from __future__ import annotations

import contextlib
import itertools
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
        assert f"drawn={row['drawn']!r}" in text and "of       k='k1', n=7" in text
        assert "draw     *** -> '***'" in text, "it may be what the masked column says"
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


def say(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row.k, row.words


def test_null_is_told_from_a_text_that_says_so(place: Place) -> None:
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    said = (
        place.causal("k string, words string").groupBy("k").process(say, "k string, words string", name="say")
    )
    place.start(said)
    words = {"none": None, "text": "null", "quoted": '"null"', "empty": "", "plain": "nullable"}
    place.write({"k": key, "words": value} for key, value in words.items())
    place.await_rows(len(words))
    place.await_commit()
    place.stop()
    ids = {row["k"]: row["clonos_id"] for row in place.rows()}
    with serving(place, "--archive") as url, browser_page() as page:
        page.goto(url)
        page.locator("#archived", has_text="say: epochs").wait_for()
        page.get_by_role("button", name="Find").click()
        page.locator("#found", has_text=f"{len(words)} rows.").wait_for()

        def cell(key: str) -> Any:
            button = page.get_by_role("button", name=ids[key], exact=True)
            return page.locator("#found tbody tr").filter(has=button).locator("td").last

        shown = {key: cell(key).inner_text() for key in words}
        quoted = json.dumps(words["quoted"])
        assert shown == {
            "none": "null",
            "text": '"null"',
            "quoted": quoted,
            "empty": '""',
            "plain": "nullable",
        }
        (null,) = page.get_by_role("img", name="null, no value").all()
        assert cell("none").get_by_role("img", name="null, no value").count() == 1
        assert null.evaluate("one => getComputedStyle(one).fontStyle") == "italic"
        page.locator("#where").fill(f"words={shown['text']}")
        page.get_by_role("button", name="Find").click()
        page.locator("#found", has_text="1 row.").wait_for()
        assert [cell(key).count() for key in words] == [0, 1, 0, 0, 0], "as it is shown, it is found"
        for key, text in (("none", "words=None"), ("text", "words='null'")):
            page.locator("#row").fill(ids[key])
            page.get_by_role("button", name="Explain").click()
            card = page.locator(f"#explained article[aria-label='row {ids[key]}']")
            assert text in card.locator("pre").text_content()


def test_two_explained_rows_are_compared_in_a_browser(archived: Place) -> None:
    seven, ten, eight = ({row["n"]: row for row in archived.rows()}[n] for n in (7, 10, 8))
    assert seven["k"] == ten["k"] != eight["k"]
    with serving(archived, "--archive") as url, browser_page() as page:
        page.goto(url)
        page.locator("#archived", has_text="keep: epochs 0 to").wait_for()

        def explained(row: dict[str, Any]) -> Any:
            page.locator("#row").fill(row["clonos_id"])
            page.get_by_role("button", name="Explain").click()
            card = page.locator(f"#explained article[aria-label='row {row['clonos_id']}']")
            card.locator("img").wait_for()
            return card

        def side_by_side(*rows: dict[str, Any]) -> list[list[str | None]]:
            """The lines of the comparison; those that are missing on a side are None. All of both texts is there."""
            table = page.get_by_role(
                "table", name="rows {clonos_id} and ".format(**rows[0]) + rows[1]["clonos_id"]
            )
            lines: list[list[str | None]] = table.locator("tbody tr").evaluate_all(
                "all => all.map(one => [...one.cells].map(each => each.className === 'none' ? null : each.textContent))"
            )
            for at, row in enumerate(rows):
                text = page.locator(
                    f"#explained article[aria-label='row {row['clonos_id']}'] pre"
                ).text_content()
                assert "\n".join(line for pair in lines if (line := pair[at]) is not None) == text
            return lines

        cards = {row["n"]: explained(row) for row in (seven, ten, eight)}
        assert page.locator("#compared table").count() == 0
        cards[7].get_by_label("compare").check()
        assert page.locator("#compared table").count() == 0, "with what?"
        cards[10].get_by_label("compare").check()
        lines = side_by_side(seven, ten)
        rows = page.locator("#compared tbody tr")
        first = rows.first.locator("td")
        for at, row in enumerate((seven, ten)):
            said = [row["clonos_id"], str(row["n"]), f"card-{row['n']}", repr(row["drawn"])]
            assert first.nth(at).locator("mark").all_text_contents() == said
        differing = [pair for pair in lines if pair[0] != pair[1]]
        assert rows.filter(has=page.locator("mark")).count() == len(differing) < len(lines)
        page.get_by_text(f"{len(differing)} of {len(lines)} lines differ.").wait_for()
        assert any(one and other and "random()" in one and "random()" in other for one, other in differing)
        cards[8].get_by_label("compare").check()
        side_by_side(ten, eight)
        assert not cards[7].get_by_label("compare").is_checked()
        cards[10].get_by_role("button", name="close").click()
        assert page.locator("#compared table").count() == 0
        cards[7].get_by_label("compare").check()
        side_by_side(eight, seven)
        explained(eight)
        assert page.locator("#compared table").count() == 0, "it is another answer"


TEXTS = (
    "",
    "a",
    "a\n",
    "  of row 2-0-1  n=1\n",
    "  of row 2-0-3  n=1, k='b'\n\n",
    "\u200d\U0001f600 <b>&amp;</b>\n" * 3,
)


def test_of_two_texts_nothing_is_lost_and_all_that_differs_is_marked(archived: Place) -> None:
    long = ["\n".join(f"  of row {n * step} {'word ' * 3}" for n in range(1000)) for step in (1, 2)]
    pairs = [*itertools.product(TEXTS, repeat=2), tuple(long), ("x " * 2000, "y " * 2000)]
    with serving(archived, "--archive") as url, browser_page() as page:
        page.goto(url)
        script = "async ([one, other]) => (await import('/static/compare.js')).compared(one, other)"
        for texts in pairs:
            lines = page.evaluate(script, list(texts))
            for at, text in enumerate(texts):
                sides = [pair[at] for pair in lines if pair[at] is not None]
                assert "\n".join("".join(part["text"] for part in side) for side in sides) == text
            for one, other in lines:
                if one is None or other is None:
                    assert all(part["differs"] for part in one or other)
                else:
                    same = [[part["text"] for part in side if not part["differs"]] for side in (one, other)]
                    assert "".join(same[0]) == "".join(same[1]), texts
                    marked = any(part["differs"] for side in (one, other) for part in side)
                    said = ["".join(part["text"] for part in side) for side in (one, other)]
                    assert marked == (said[0] != said[1])


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
