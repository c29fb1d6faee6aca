"""Takes docs/page.png and docs/tab.png anew: `python scripts/take_pictures.py`. It needs a Chromium.

A query with two sinks and hot standbys runs, and a replica of one sink is killed a few times. Nothing else should run
meanwhile: the pictures show its rates and latencies.
"""

from __future__ import annotations

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


def take(spark: SparkSession, checkpoint: Path) -> None:
    """Both pictures; the page says that the checkpoint is in `BASE`."""
    served = subprocess.Popen(
        [sys.executable, "-m", "clonos.cli", "serve", str(checkpoint), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with served, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=VIEW)
        assert served.stdout is not None
        for url, name, height in (
            (served.stdout.readline().strip(), "page.png", VIEW["height"]),
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
        browser.close()
        served.terminate()


def main() -> None:
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
