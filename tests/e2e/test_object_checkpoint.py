"""A query whose checkpoint is in an object store: replicas, the store and the driver are killed, and it goes on."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest
from driver import Driver, until
from ledger_job import LATER, Run, assert_exact
from modes import mostly
from s3_server import S3Server
from s3a import session_settings, why_not

from clonos import cli
from clonos.storage import object_store
from clonos.testing.faults import Fault, Point, Strike, script

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.usefixtures("plugin_jar")]
TRIGGERS = {"microbatch": None, "realtime": {"realTime": "2 seconds"}}


@pytest.mark.parametrize("mode", mostly("realtime"))
def test_a_query_goes_on_from_a_checkpoint_in_an_object_store(
    s3: S3Server, tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    """Only Spark's session is told where the store is and who may use it: driver, replicas, and the next driver, which
    takes the place of a dead one at once, know it from there."""
    if reason := why_not():
        pytest.skip(reason)
    bucket = s3.fresh_bucket()
    options = {name: str(value) for name, value in s3.options().items() if isinstance(value, str)}
    object_store.use({f"s3://{bucket}": options})
    struck = Fault(point=Point.AFTER_SNAPSHOT, strike=Strike.REPLICA, operator="second", asked=LATER)
    setup = Run(
        tmp_path,
        mode=mode,
        location=f"s3a://{bucket}/jobs/one",
        settings={"data": str(tmp_path / "data"), "archive.keep": "1 day"},
        trigger=TRIGGERS[mode],
        faults=script(struck),
        goes_on=True,
    )
    setup.prepare()
    stop = threading.Event()
    feeder = threading.Thread(target=setup.feed, args=(stop,))
    feeder.start()
    driver = None
    try:
        driver = Driver(setup, temporary, session=session_settings(s3)).await_start()
        until(lambda: len(setup.epochs("commits")) > 1 or not driver.alive, setup.deadline, "an epoch more")
        s3.kill()
        s3.start()
        before = max(setup.epochs("commits"))
        until(
            lambda: max(setup.epochs("commits")) > before or not driver.alive,
            setup.deadline,
            "another epoch, with the store there again",
        )
        driver.kill()
        driver = Driver(setup, temporary, session=session_settings(s3)).await_start()
        before = max(setup.epochs("commits"))
        until(lambda: max(setup.epochs("commits")) > before or not driver.alive, setup.deadline, "one more")
        setup.enough.set()
        until(
            lambda: (setup.fed.is_set() and setup.visible() >= setup.count) or not driver.alive,
            setup.deadline,
            "all",
        )
        before = max(setup.epochs("commits"))
        until(lambda: max(setup.epochs("commits")) > before or not driver.alive, setup.deadline, "its end")
        ended = driver.stop()
        assert ended["error"] is None, ended
        assert setup.fired(), "a replica was killed"
    finally:
        stop.set()
        feeder.join()
        if driver is not None:
            driver.end()
    assert_exact(setup)
    archived(setup, capsys)


def archived(setup: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """The archive, which is in the store, too, answers for it all, and forgets."""
    capsys.readouterr()
    assert cli.main(["archive", "verify", setup.location, "--json"]) == 0
    assert sum(each.get("records", 0) for each in json.loads(capsys.readouterr().out)) > setup.count
    # Of the epoch that had not ended nothing is told.
    found = setup.rows("clonos_id, b_hash, a_key")
    rows = sorted(found, key=lambda row: int(row[0].rpartition("-")[2]))[: len(found) // 2]
    for clonos_id, b_hash, _ in random.Random(1).sample(rows, 3):
        assert cli.main(["explain", setup.location, clonos_id, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["row"]["b_hash"] == b_hash
    forget = ["archive", "forget", setup.location, "--operator", "first", "--key", "k3", "--yes"]
    assert cli.main(forget) == 0
    capsys.readouterr()
    of_key = next(clonos_id for clonos_id, _, key in rows if key == "k3")
    assert cli.main(["explain", setup.location, of_key]) == 1
    assert "erased" in capsys.readouterr().out
