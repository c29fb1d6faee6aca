"""Takes the pictures of docs/ anew, with a Chromium.

    python scripts/take_pictures.py
    python scripts/take_pictures.py --row <checkpoint> <row id> <operator> column=value

The first takes page.png and tab.png: a query with two sinks and hot standbys runs, and a replica of one sink is killed
a few times. Nothing else should run meanwhile: the pictures show its rates and latencies. The second takes explain.svg
and explain.png: a row of a run that has ended, as `make demo ARGS="--keep"` leaves one, is found and explained.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from pyspark.sql import SparkSession

import clonos
from clonos.sources import LogWriter

DOCS = Path(__file__).resolve().parents[1] / "docs"
BASE = "/data/payments"
RATE, QUIET_S, KILLS = 250, 60.0, 5
VIEW = {"width": 1240, "height": 1010}


def score(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    ctx.state["spent"] = spent = ctx.state.get("spent", 0) + row.amount
    if row.amount > 450:
        ctx.side_output("large", (key[0], row.amount))
    yield key[0], row.amount, spent


def stamp(row: Any, ctx: Any) -> tuple[Any, ...]:
    return row.card, row.amount, row.spent, ctx.now()


def audit(row: Any, ctx: Any) -> bool:
    return bool(ctx.random.random() < 0.4)


def pay(folder: Path, ending: threading.Event) -> None:
    with LogWriter(folder, partitions=2) as log:
        for number in range(1 << 30):
            log.append(number % 2, b"card-%d,%d" % (random.randrange(500), random.randrange(500)))
            log.flush()
            if ending.wait(1 / RATE):
                return


def query(spark: SparkSession, base: Path) -> Any:
    parts = "split(string(value), ',')"
    payments = (
        spark.readStream.format("clonos")
        .load(str(base / "in"))
        .selectExpr(f"{parts}[0] AS card", f"int({parts}[1]) AS amount")
    )
    scored = (
        clonos.causal(payments)
        .groupBy("card")
        .process(
            score,
            "card string, amount int, spent long",
            name="score",
            side_outputs={"large": "card string, amount int"},
        )
    )
    stamped = scored.map(stamp, "card string, amount int, spent long, at timestamp", name="stamp")
    alarms = scored.side_output("large").filter(audit, name="audit")
    place = f"sqlite:///{base}/out.db"
    writer = stamped.writeStream.to(clonos.sinks.sql(place, "decisions"), name="decisions")
    writer = writer.to(clonos.sinks.jsonl(base / "alarms"), name="alarms", stream=alarms)
    return writer.option("checkpointLocation", str(base / "ck")).trigger(realTime="5 seconds").start()


def strike(running: Any) -> None:
    """Kill the replica of the last sink, each time as soon as there is another one."""
    killed: set[int] = set()
    while len(killed) < KILLS:
        replicas = running.replicas()
        last = max((replica["node"] for replica in replicas), default=0)
        for replica in replicas:
            if replica["node"] == last and replica["pid"] not in killed:
                os.kill(replica["pid"], signal.SIGKILL)
                killed.add(replica["pid"])
        running.awaitTermination(2.0)


@contextlib.contextmanager
def served(checkpoint: Path, *options: str) -> Iterator[tuple[Any, str]]:
    """An empty page, and the address at which `clonos serve` has the query's."""
    command = [sys.executable, "-m", "clonos.cli", "serve", str(checkpoint), "--port", "0", *options]
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            assert serving.stdout is not None
            yield browser.new_page(viewport=VIEW), serving.stdout.readline().strip()
        finally:
            browser.close()
            serving.terminate()


def take(spark: SparkSession, checkpoint: Path) -> None:
    """The query's page and Spark's tab; the page says that the checkpoint is in `BASE`."""
    with served(checkpoint) as (page, address):
        for url, name, height in (
            (address, "page.png", VIEW["height"]),
            (f"{spark.sparkContext.uiWebUrl}/clonos/", "tab.png", 640),
        ):
            page.set_viewport_size({**VIEW, "height": height})
            page.goto(url)
            page.wait_for_timeout(QUIET_S * 1000)  # the course of rates fills the picture
            for frame in page.frames:
                frame.evaluate(
                    "([from, to]) => { for (const walker = document.createTreeWalker(document, 4); walker.nextNode();)"
                    " walker.currentNode.data = walker.currentNode.data.replaceAll(from, to) }",
                    [str(checkpoint.parent), BASE],
                )
            page.screenshot(path=DOCS / name)


def take_row(checkpoint: Path, row: str, operator: str, where: str) -> None:
    """What made a row, as a file and on the page."""
    draw = ["explain", str(checkpoint), row, "--draw", str(DOCS / "explain.svg")]
    subprocess.run([sys.executable, "-m", "clonos.cli", *draw], check=True)
    with served(checkpoint, "--archive") as (page, address):
        page.goto(address)
        page.fill("#row", row)
        page.click("#ask button")
        page.wait_for_selector("#explained img", timeout=60_000)
        page.select_option("#operator", operator)
        page.fill("#where", where)
        page.click("#search button")
        page.wait_for_selector("#found table", timeout=60_000)
        page.locator("section", has=page.locator("#archive-title")).screenshot(path=DOCS / "explain.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", nargs=4, metavar=("CHECKPOINT", "ROW", "OPERATOR", "WHERE"))
    row = parser.parse_args().row
    if row is None:
        take_query()
    else:
        take_row(Path(row[0]), *row[1:])


def take_query() -> None:
    ending = threading.Event()
    builder = clonos.configure(SparkSession.builder).master("local[16]").config("spark.clonos.standby", "hot")
    spark = builder.getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        paying = threading.Thread(target=pay, args=(base / "in", ending))
        paying.start()
        while not (base / "in").exists():
            time.sleep(0.1)
        running = query(spark, base)
        try:
            running.awaitTermination(20.0)
            strike(running)
            take(spark, base / "ck")
        finally:
            ending.set()
            paying.join()
            running.stop()
    spark.stop()


if __name__ == "__main__":
    main()
