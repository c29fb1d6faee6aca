"""Answers of calls that were recorded in an epoch which retention has dropped since: nothing of them is left in what is
kept of it, its state; and erasing the key finds them where an earlier version has left them there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from archive_bytes import places_of
from streams import Place

from clonos import cli
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.ids import Epoch
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica import snapshot_metadata as metadata

pytestmark = pytest.mark.spark

KEY = "eve-5b1c9e7d20"
ANSWER = "b7f9d02c6e1a48539"
OTHERS = ("ann", "bob")


def ask(key: str) -> str:
    return ANSWER if key == KEY else "-"


def see(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    """What is answered goes neither into rows nor into state."""
    yield row.k, len(ctx.call(ask, row.k)), row.fill


def look(key: Any, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
    yield row.k, len(ctx.call(ask, row.k))


def run(place: Place, *keys: str, fill: int = 0) -> None:
    """An epoch with a record of each key, in a start of its own, so that there is a state behind it."""
    place.spark.conf.set("spark.clonos.archive.keep", "1 day")
    place.spark.conf.set("spark.clonos.archive.size", "60k")  # of which each of two instances has its part
    place.spark.conf.set("spark.clonos.standby", "hot")
    rows = place.causal("k string, fill string", partitions=1).groupBy("k")
    seen = rows.process(see, "k string, n long, fill string", name="see", parallelism=1)
    looked = seen.groupBy("n").process(look, "k string, n long", name="look", parallelism=1)
    last = {each.origin: newest_state(each) for each in archived(place)} if place.checkpoint.exists() else {}
    before = len(place.rows())
    place.write([{"k": key, "fill": secrets.token_hex(fill)} for key in keys], partitions=1)
    place.start(looked)  # behind it, so that the first epoch has them
    place.until(lambda: len(place.rows()) >= before + len(keys), "rows")
    place.await_commit()
    place.until(
        lambda: all(newest_state(each) > last.get(each.origin, -1) for each in archived(place)), "states"
    )
    place.stop()


def newest_state(instance: ArchivedInstance) -> int:
    """A process stores the first one at the end of an epoch, and the next a minute later."""
    return max(instance.state_epochs, default=-1)


def archived(place: Place) -> list[ArchivedInstance]:
    """Of `see` and of `look`."""
    return ArchivedQuery(str(place.checkpoint)).instances()


def log_of(instance: ArchivedInstance, epoch: Epoch) -> bytes:
    episode = instance.episode(epoch)
    assert isinstance(episode, Episode)
    return episode.log


def forget(place: Place, capsys: pytest.CaptureFixture[str], key: str) -> Any:
    capsys.readouterr()
    at = str(place.checkpoint)
    code = cli.main(["archive", "forget", at, "--operator", "see", "--key", key, "--yes", "--json"])
    told = capsys.readouterr()
    assert code == 0, told
    return json.loads(told.out)


def put_log_into_state(place: Place, instance: ArchivedInstance, epoch: Epoch, log: bytes) -> None:
    """As earlier versions have left it, of an instance that may have been on another host."""
    (name,) = [each for each in instance.state_names if each.final and each.epoch == epoch]
    state = instance.states.named(str(name))
    assert state is not None
    said = metadata.decode(state.meta, lambda _: tuple)
    assert (said.log, said.log_offset) == (b"", len(log)), "the epoch is the first one"
    node, number = instance.origin
    manifests = place.checkpoint / "clonos" / "archive" / "state" / str(node) / str(number) / "manifests"
    (manifests / str(name)).write_bytes(
        replace(state, meta=metadata.encode(replace(said, log=log))).to_bytes()
    )


def test_answers_of_an_epoch_that_retention_has_dropped(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(place, KEY, "ann", fill=10_000)
    epoch = min(archived(place)[0].epochs)
    logs = [log_of(instance, epoch) for instance in archived(place)]
    assert all(ANSWER.encode() in log for log in logs)
    in_states = [each for each in places_of(place.checkpoint, ANSWER.encode()) if "state" in each]
    assert in_states == [], "they are with the epoch alone"
    run(place, *OTHERS, fill=10_000)
    # What may go is looked at when a state is stored, unless the process is stopped before
    for _ in range(20):
        if not any(epoch in instance.epochs for instance in archived(place)):
            break
        run(place, *OTHERS)
    assert not any(epoch in instance.epochs for instance in archived(place))
    assert places_of(place.checkpoint, ANSWER.encode()) == []
    nothing = {"erased": False, "epochs": [], "states": 0, "unknown": {}}
    assert forget(place, capsys, KEY) == nothing

    for instance, log in zip(archived(place), logs, strict=True):
        put_log_into_state(place, instance, epoch, log)
    assert places_of(place.checkpoint, ANSWER.encode())
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0
    program = ArchivedInstance.program
    with monkeypatch.context() as elsewhere:

        def loaded(self: ArchivedInstance, digest: str) -> NodeSpec | Lacking:
            return program(self, digest) if self.operator == "see" else Lacking("its modules are elsewhere")

        elsewhere.setattr(ArchivedInstance, "program", loaded)
        assert forget(place, capsys, KEY) == {"erased": True, "epochs": [], "states": 2, "unknown": {}}
    assert places_of(place.checkpoint, ANSWER.encode()) == []
    assert cli.main(["archive", "verify", str(place.checkpoint)]) == 0, (
        "all that was there is repeated as before"
    )
    assert forget(place, capsys, KEY) == nothing
