"""A program is started over a checkpoint: what it changes, whether that can be taken over, and from which epoch on.

The rules are `clonos.protocol.versions.upgrade`'s; here is looked what of the open epoch there is: in Spark's logs,
in the sinks, and in the causal logs on this host. What cannot be looked into counts as seen, or goes (`open_epoch`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clonos.errors import CheckpointMismatch, ClonosError
from clonos.protocol.ids import Epoch, NodeId, Origin, channel_origin, epoch_after, epoch_before
from clonos.protocol.line.final_snapshot import FinalSnapshots, check_finals
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.topology import NodeKind, Topology
from clonos.protocol.versions.binding import Change
from clonos.protocol.versions.upgrade import (
    History,
    LastCommit,
    OpenEpoch,
    Remains,
    Upgrade,
    changed,
    is_another,
    open_epoch,
    take_over as decide,
)
from clonos.sinks.port import Sink
from clonos.spark.checkpoint import Checkpoint
from clonos.spark.query_snapshots import final_snapshots
from clonos.spark.settings import Settings
from clonos.spark.sink_stores import SinkStores, cursors_of
from clonos.storage import salvage
from clonos.storage.host_memberships import HostMemberships
from clonos.storage.log_directory import same_directory
from clonos.storage.log_store import LogReader
from clonos.storage.recovery_line_file import newest_line
from clonos_standby.replica.holders import server_folders
from clonos_standby.server.log import about
from clonos_standby.server.running import lock_data

LOG = logging.getLogger("clonos")


def take_over(
    checkpoint: Checkpoint,
    program: Topology,
    sinks: SinkStores,
    data: str,
    *,
    forget_hosts: Callable[[], None],
    same_source: bool = False,
) -> History:
    """The programs of the checkpoint with this one, which is written down. No other driver may be running the query,
    and what an older start has under way must not become visible any more; `forget_hosts` sees to it that what other
    hosts hold does not count any more. Raises CheckpointMismatch, with what to do."""
    upgrade = consider(checkpoint, program, sinks, data, same_source=same_source)
    if upgrade.drops:
        forget_hosts()
        drop(data)
    checkpoint.bind(upgrade.history)
    for change in upgrade.later:
        place = about("program_changes", query=sinks.query, epoch=upgrade.since)
        LOG.info("from epoch %d on: %s", upgrade.since, change, extra=place)
    return upgrade.history


def consider(
    checkpoint: Checkpoint, program: Topology, sinks: SinkStores, data: str, *, same_source: bool = False
) -> Upgrade:
    """What would become of the checkpoint. Raises CheckpointMismatch."""
    epoch = _look(checkpoint, program, sinks, data)
    return decide(checkpoint.history(), program, epoch, same_source=same_source)


def _look(checkpoint: Checkpoint, program: Topology, sinks: SinkStores, data: str) -> OpenEpoch:
    number = epoch_after(checkpoint.passed())
    if not is_another(checkpoint.history(), program):
        return OpenEpoch(number, begun=False, seen=epoch_before(number))
    bound = checkpoint.history().at(number)
    return open_epoch(
        number,
        _remains(checkpoint, bound, sinks, data, number),
        realtime=bound.realtime,
        planned=checkpoint.planned(number),
    )


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """What a program would change: `changes`, those that wait take effect from epoch `since` on. Where it is `refused`,
    this says why and what to do."""

    changes: tuple[Change, ...]
    since: Epoch | None
    drops: bool
    refused: str | None

    def to_document(self) -> dict[str, Any]:
        changes = [{**asdict(change), "when": change.when.value} for change in self.changes]
        return {"changes": changes, "since": self.since, "drops": self.drops, "refused": self.refused}


def explain(
    checkpoint: Checkpoint,
    program: Topology,
    sinks: Mapping[NodeId, Sink],
    settings: Settings,
    *,
    same_source: bool,
) -> UpgradeReport:
    """Raises CheckpointMismatch where there is no causal query."""
    query, _ = checkpoint.shape()
    history = checkpoint.history()
    for sink in sinks.values():
        sink.bind(checkpoint.location)
    data = data_directory(checkpoint.location, query, settings)
    epoch = _look(checkpoint, program, SinkStores(sinks, query), data)
    try:
        upgrade = decide(history, program, epoch, same_source=same_source)
    except CheckpointMismatch as error:
        changes = changed(history, epoch.seen, program, same_source=same_source)
        return UpgradeReport(tuple(changes), None, drops=False, refused=str(error))
    return UpgradeReport(upgrade.changes, upgrade.since, upgrade.drops, None)


def data_directory(location: str, query: str, settings: Settings) -> str:
    """Where this host keeps causal logs and working state of a query. Survives a restart of the driver."""
    if settings.data_dir:
        return os.path.join(settings.data_dir, query)
    inside = Checkpoint(location).inside
    if inside is not None:
        return inside
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    return os.path.join(cache, "clonos", query)


def _remains(checkpoint: Checkpoint, bound: Topology, sinks: SinkStores, data: str, number: Epoch) -> Remains:
    before = epoch_before(number)
    finals = final_snapshots(checkpoint.location, bound, before)
    check_finals(bound, finals, line=newest_line(checkpoint.location), epoch=before)
    own, deltas, whole = recorded(data)
    cursors: dict[int, int] = {}
    operators = {node.number for node in bound.nodes if node.kind is NodeKind.OPERATOR}
    with sinks.log_readers() as readers:
        for reader in readers.values():
            deltas += reader.deltas()
            whole = whole and not reader.corrupt
        visible = cursors_of(readers)
    for said in visible.values():
        for channel, upto in said.items():
            if channel_origin(channel).node in operators:
                cursors[channel] = max(upto, cursors.get(channel, 0))
    whole = _is_here(checkpoint, data) and whole
    return Remains(last_commits(finals), own, deltas, cursors, whole)


def last_commits(finals: FinalSnapshots) -> dict[Origin, LastCommit]:
    """Where instances stood, by the snapshots with which they ended an epoch."""
    return {origin: LastCommit(final.point.log_offset, final.emitted) for origin, final in finals.items()}


def recorded(data: str) -> tuple[list[tuple[Origin, Segment]], list[bytes], bool]:
    """What the stores in a data directory hold, as `read_store` says of each."""
    own: list[tuple[Origin, Segment]] = []
    deltas: list[bytes] = []
    whole = True
    for path in stores(data):
        whole = read_store(path, own, deltas) and whole
    return own, deltas, whole


def _is_here(checkpoint: Checkpoint, data: str) -> bool:
    """Whether all causal logs of the last start are in this data directory, and not on other hosts, too."""
    place = checkpoint.place()
    if place is None:
        return True
    host, where = place
    moved = not same_directory(where, data) or (host != platform.node() and where != checkpoint.inside)
    return not moved and os.path.isdir(data) and not HostMemberships(checkpoint.location).last()


def stores(data: str) -> Iterator[Path]:
    """The causal log stores in a data directory. What is to take the place of a damaged one counts where there is none
    any more."""
    for folder in server_folders(Path(data)).values():
        for path in salvage.places(folder / "logs"):
            yield Path(f"{path}{salvage.NEW}") if salvage.being_replaced(str(path)) else path


def read_store(path: Path, own: list[tuple[Origin, Segment]], deltas: list[bytes]) -> bool:
    """What a store holds, its own log and what others were sent; whether that is all that it ever held: one that is in
    the place of a damaged one holds what could be read of it."""
    origin = Origin.of(int(path.parent.name), int(path.name.removesuffix(salvage.NEW)))
    try:
        reader = LogReader(str(path))
        try:
            own += [(origin, piece) for piece in reader.own()]
            deltas += reader.deltas()
            return not (reader.corrupt or reader.damaged_before)
        finally:
            reader.close()
    except ClonosError:
        return False


@contextlib.contextmanager
def undisturbed(data: str) -> Iterator[None]:
    """While no replica server is at work in the data directory; one that is just dying is waited for."""
    Path(data).mkdir(parents=True, exist_ok=True)
    lock = lock_data(Path(data))
    try:
        yield
    finally:
        os.close(lock)


def drop(data: str) -> None:
    """Remove what is recorded of an epoch of which nothing was seen, or whose history is given up. What lies before
    that epoch is not asked for any more."""
    for folder in server_folders(Path(data)).values():
        shutil.rmtree(folder / "logs", ignore_errors=True)
