"""What of a query is kept in its checkpoint beside Spark's own: shape, identity, generation.

    <checkpoint>/clonos/query.json      format version, query id, the programs it ran and from which epoch on, checksum
    <checkpoint>/clonos/generations/    claims of starts, and leases/ of drivers (clonos.storage.generations)
    <checkpoint>/clonos/hosts/          which other hosts' logs count (clonos.storage.host_memberships)
    <checkpoint>/clonos/place           the host of the last start, and its directory for logs and working state
    <checkpoint>/clonos/epochs/         what epochs have left that committed (clonos.storage.commit_files)
    <checkpoint>/clonos/unrecorded      why the driver cannot record a commit (clonos.storage.unrecorded_file)
    <checkpoint>/clonos/given-up        the last start whose history was given up (on_gap="at_least_once"), and the
                                        highest output number that was given until then
    <checkpoint>/clonos/channels/       the numbers of source channels that have names (clonos.storage.channel_pages)
    <checkpoint>/clonos/tables/         the versions of tables beside streams (clonos.storage.table_versions)
    <checkpoint>/clonos/openlineage/    runs without a last event (clonos.spark.openlineage.untold_runs)
    <checkpoint>/clonos/state/...       snapshots (clonos.storage.snapshots)

What is written here, its leader writes (clonos.spark.leadership).
"""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from clonos.errors import CheckpointMismatch, StorageUnavailable
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.protocol.ids import NO_EPOCH, NO_OUTPUT, Epoch, Origin, OutputNumber, epoch_before
from clonos.protocol.line.commit_record import CommitRecord
from clonos.protocol.line.unrecorded_commit import UnrecordedCommit
from clonos.protocol.recovery.recoveries import Recoveries
from clonos.protocol.recovery.recovery_kind import RecoveryKind
from clonos.protocol.source_channels import ChannelNumbers
from clonos.protocol.topology import NodeKind, Topology
from clonos.protocol.versions.upgrade import History
from clonos.storage import dead_letters
from clonos.storage.channel_pages import ChannelPages, channel_numbers
from clonos.storage.commit_files import read_commit, write_commit
from clonos.storage.epoch_plan import OFFSETS, damage_of
from clonos.storage.folder import TMP, Folder, resolve
from clonos.storage.sealed import sealed, unsealed
from clonos.storage.unrecorded_file import write_unrecorded

QUERY = "query.json"
GIVEN_UP = "given-up"
PLACE = "place"
TOPICS = "topics"
COMMITS = "commits"  # Spark's own, as are its offsets
_NUMBERS_BITS_BEFORE = 44
_RECOVERY = "recovery"
_RECOVERIES = "recoveries"


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The last start whose history was given up, 0 where none was, and the highest output number up to then."""

    generation: Generation = NO_GENERATION
    numbers: OutputNumber = NO_OUTPUT


class Checkpoint:
    """The `clonos` folder of one checkpoint location; any file system that PyArrow opens."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/") or location
        filesystem, root = resolve(self.location)
        self._root = Folder(filesystem, root, tag="spark")
        self._folder = Folder(filesystem, f"{root}/clonos", tag=f"driver-{uuid.uuid4().hex}")
        self._chosen: Mapping[str, Any] | None = None  # the recoveries of the query that has been opened

    def open(self, topology: Topology, recoveries: Recoveries | None = None) -> str:
        """The query's id: the one kept here, or a new one. Without `recoveries` all have causal logging. Raises
        CheckpointMismatch."""
        recoveries = recoveries or Recoveries.of(topology, RecoveryKind.CAUSAL)
        said = self._read(QUERY)
        if said is None:
            if self._has_spark_log():
                raise CheckpointMismatch(
                    f"{self.location} is the checkpoint of a query that Clonos did not write, or its folder clonos is "
                    "gone",
                    hint="Use a new checkpointLocation. If the folder is gone, restore it: over a new checkpoint the "
                    "query shows every row again",
                )
            query = uuid.uuid4().hex
            self._bind(query, History.of(topology), _chosen(topology, recoveries))
            return query
        self._check_recoveries(topology, recoveries)
        self._chosen = _chosen(topology, recoveries)
        found: str = self._query()["query"]
        return found

    def recovery(self) -> RecoveryKind:
        """Of the query that has begun over it. Before there was a choice it was causal logging."""
        return RecoveryKind(self._query().get(_RECOVERY, RecoveryKind.CAUSAL.value))

    def _check_recoveries(self, topology: Topology, wanted: Recoveries) -> None:
        """What one recovery keeps in a checkpoint, another one does not look for. Raises CheckpointMismatch."""
        begun, by_name = self.recovery(), wanted.by_name(topology)
        differ = {name: was for name, was in self.recoveries().items() if by_name.get(name, was) is not was}
        if differ and begun is not wanted.default:
            raise CheckpointMismatch(
                f"the query in {self.location} began with spark.clonos.recovery={begun.value}, and is now to go on "
                f"with {wanted.default.value}",
                hint=f"Set spark.clonos.recovery={begun.value}, or begin anew with a new checkpoint and a new sink",
            )
        for name, was in differ.items():
            raise CheckpointMismatch(
                f"{name!r} of the query in {self.location} began with recovery={was.value}, and is now to go "
                f"on with {by_name[name].value}",
                hint="Give operators the recoveries that they began with (a sink has those of the operators before "
                "it), or begin anew with a new checkpoint and a new sink",
            )

    def recoveries(self) -> dict[str, RecoveryKind]:
        """Of operators and sinks, by name: those of the query, or where they are not all the same, of each."""
        said: dict[str, str] = self._query().get(_RECOVERIES, {})
        default = self.recovery()
        return {
            node.name: RecoveryKind(said.get(node.name, default.value))
            for node in self.history().bindings[-1].program.nodes
            if node.kind is not NodeKind.SOURCE
        }

    def _has_spark_log(self) -> bool:
        return "metadata" in self._root.sizes("") or bool(self._root.sizes(COMMITS))

    def check_split(self) -> None:
        """Before anything is touched. Raises CheckpointMismatch where an older version has its folder elsewhere."""
        other = None if self.is_causal() or not self._has_spark_log() else self.unescaped()
        if other is not None:
            raise CheckpointMismatch(
                f"{self.location} has Spark's log, and the folder clonos of the query is in {other.location}: older "
                "versions read the escapes in a location, which Spark does not",
                hint=f"Move {other._folder} to {self._folder}",
            )

    def unescaped(self) -> Checkpoint | None:
        """That of a causal query where the location's escapes are read as such, if there is one."""
        location = unquote(self.location)
        other = Checkpoint(location) if location != self.location else None
        return other if other is not None and other.is_causal() else None

    def history(self) -> History:
        """The programs that ran over this checkpoint. Raises CheckpointMismatch where there is no causal query."""
        body = self._query()
        if "history" not in body:  # written before there was more than one
            return History.of(Topology.from_document(body["topology"]))
        return History.from_document(body["history"])

    def bind(self, history: History) -> None:
        """From now on these are the programs."""
        if history.to_document() != self.history().to_document():
            said = self._query()
            before = {name: said[name] for name in (_RECOVERY, _RECOVERIES) if name in said}
            self._bind(said["query"], history, before if self._chosen is None else self._chosen)

    def _bind(self, query: str, history: History, chosen: Mapping[str, Any]) -> None:
        last = history.bindings[-1].program.to_document()
        body = {"query": query, "topology": last, "history": history.to_document(), **chosen}
        self._folder.write(QUERY, sealed(body))

    def is_causal(self) -> bool:
        """Whether a causal query has begun over it."""
        return self._read(QUERY) is not None

    def shape(self) -> tuple[str, dict[str, Any]]:
        """The query's id and its topology's document. Raises CheckpointMismatch where there is no causal query."""
        body = self._query()
        return body["query"], body["topology"]

    def _query(self) -> dict[str, Any]:
        said = self._read(QUERY)
        if said is None:
            raise CheckpointMismatch(
                f"{self.location} is not the checkpoint of a causal query",
                hint="Give the checkpointLocation of a query that Clonos has started",
            )
        return unsealed(said, f"{self.location}/clonos/{QUERY}")

    def set_place(self, data: str) -> None:
        """Where this start keeps what is not in the checkpoint; a directory inside may be moved or copied with it."""
        elsewhere = None if data == self.inside else os.path.abspath(data)
        self._folder.write(PLACE, sealed({"host": platform.node(), "data": elsewhere}))

    def place(self) -> tuple[str, str] | None:
        """Host and data directory of the last start; None before the first."""
        said = self._read(PLACE)
        if said is None:
            return None
        body = unsealed(
            said, f"{self.location}/clonos/{PLACE}", "Start the query as it was: that writes it again"
        )
        return body["host"], body["data"] or self.inside or ""

    @property
    def inside(self) -> str | None:
        """Where the data directory is by default, if the checkpoint is on this host."""
        return os.path.join(self._folder.local, "local") if self._folder.local is not None else None

    def dead_letters(self, origin: Origin) -> int:
        """Records of an instance that were passed over and kept."""
        names = self._root.sizes(f"{dead_letters.FOLDER}/{origin}")
        return sum(name.endswith(dead_letters.SUFFIX) for name in names)

    def committed_at(self) -> float | None:
        """When the last epoch was committed, in seconds since 1970, where the checkpoint is on this host."""
        epoch = self.committed()
        if self._root.local is None or epoch < 0:
            return None
        try:
            return os.stat(os.path.join(self._root.local, COMMITS, str(epoch))).st_mtime
        except FileNotFoundError:  # just removed: Spark keeps the last hundred
            return None

    def sweep(self) -> None:
        """Remove what Spark refuses to begin over: what a start that was killed in the first epoch was still writing,
        files that a power failure has emptied, since Spark does not sync them, and commits without their offsets."""
        for folder in (OFFSETS, COMMITS):
            for epoch in self._emptied(folder):
                self._delete_epoch(folder, epoch)
            names = self._root.sizes(folder)
            if not any(name.isdigit() for name in names):
                for name in names:
                    self._root.delete(f"{folder}/{name}")
        committed = self.committed()
        for epoch in self._epochs(COMMITS):
            if epoch > committed:
                self._delete_epoch(COMMITS, epoch)
        for name in self._folder.sizes(TMP):  # of drivers before this one
            if name.startswith("driver-") and not name.startswith(self._folder.tag):
                self._folder.delete(f"{TMP}/{name}")

    def _emptied(self, folder: str) -> list[Epoch]:
        """Epochs whose file says nothing: of the newest it is read whether there is anything but zeros in it."""
        sizes = {Epoch(int(name)): size for name, size in self._root.sizes(folder).items() if name.isdigit()}
        empty = [epoch for epoch, size in sizes.items() if size == 0]
        newest = max(sizes.keys() - empty, default=None)
        if newest is not None and not _is_whole(self._root.read(f"{folder}/{newest}")):
            empty.append(newest)
        return empty

    def _epochs(self, folder: str) -> set[Epoch]:
        """The epochs of which one of Spark's logs says something."""
        sizes = self._root.sizes(folder)
        return {Epoch(int(name)) for name, size in sizes.items() if name.isdigit() and size > 0}

    def _delete_epoch(self, folder: str, epoch: Epoch) -> None:
        """A checksum beside a file that outlived it goes, too."""
        self._root.delete(f"{folder}/.{epoch}.crc")
        self._root.delete(f"{folder}/{epoch}")

    def give_up(self, generation: Generation, numbers: OutputNumber) -> None:
        """What the starts so far have shown cannot be repeated any more; output goes on behind the last number."""
        self._folder.write(GIVEN_UP, sealed({"generation": generation, "numbers": numbers}))

    def given_up(self) -> GivenUp:
        said = self._read(GIVEN_UP)
        if said is None:
            return GivenUp()
        body = unsealed(said, f"{self.location}/clonos/{GIVEN_UP}")
        generation = Generation(int(body["generation"]))
        # The format before had no number: a start's began at its generation, this far apart.
        return GivenUp(generation, OutputNumber(int(body.get("numbers", generation << _NUMBERS_BITS_BEFORE))))

    def keep_topics(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """By source, and by name, the ids of the topics that it reads."""
        self._folder.write(TOPICS, sealed({"topics": topics}))

    def topics(self) -> dict[str, dict[str, str]]:
        said = self._read(TOPICS)
        return {} if said is None else dict(unsealed(said, f"{self.location}/clonos/{TOPICS}")["topics"])

    def channel_numbers(self) -> ChannelNumbers:
        """The numbers of source channels that have names, read without giving new ones. Raises CheckpointMismatch."""
        return channel_numbers(self._folder)

    def channel_pages(self, check_leads: Callable[[], None]) -> ChannelPages:
        return ChannelPages(self._folder, check_leads)

    # ---------------------------------------------------------------- commits

    def spark_files(self, epoch: Epoch) -> tuple[bytes, bytes]:
        """Spark's own files of an epoch that has committed, offsets and commit; Spark does not sync them."""
        names = f"{OFFSETS}/{epoch}", f"{COMMITS}/{epoch}"
        try:
            for name in names:
                self._root.sync(name)
            offsets, commits = (self._root.read(name) for name in names)
        except FileNotFoundError as error:
            raise StorageUnavailable(f"Spark's files of epoch {epoch} are gone: {error}") from error
        if not (_is_whole(offsets) and _is_whole(commits)):
            raise StorageUnavailable(f"Spark's files of epoch {epoch} in {self.location} say nothing")
        return offsets, commits

    def sync_spark_files(self) -> None:
        """Sync the files that say with which epoch the query goes on."""
        passed = self.passed()
        for folder in (OFFSETS, COMMITS):
            for epoch in self._epochs(folder) & {passed, passed + 1}:
                self._root.sync(f"{folder}/{epoch}")

    def files_of(self, folder: str, epochs: Iterable[Epoch]) -> dict[Epoch, bytes]:
        """Spark's `offsets` of those that it has planned, or its `commits`."""
        found = {}
        for epoch in epochs:
            with suppress(FileNotFoundError):
                said = self._root.read(f"{folder}/{epoch}")
                if _is_whole(said):
                    found[epoch] = said
        return found

    def fit_offsets(self, fit: Callable[[bytes], bytes]) -> dict[Epoch, bytes]:
        """Fit the offsets with which Spark begins (of the last epoch that it has planned, and of those before); those
        that changed, by epoch."""
        changed = {}
        for epoch, said in self._offsets_to_begin_with().items():
            fitted = fit(said)
            if fitted != said:
                changed[epoch] = fitted
                self._root.delete(f"{OFFSETS}/.{epoch}.crc")
                self._root.write(f"{OFFSETS}/{epoch}", fitted)
        return changed

    def damaged_offsets(self) -> dict[Epoch, str]:
        """The damaged ones of the offsets with which Spark begins: where they are and what is wrong, by epoch."""
        return {
            epoch: f"{self._root.path(f'{OFFSETS}/{epoch}')}: {damage}"
            for epoch, said in self._offsets_to_begin_with().items()
            if (damage := damage_of(said)) is not None
        }

    def _offsets_to_begin_with(self) -> dict[Epoch, bytes]:
        """A start in real time drops the last one where that epoch has not committed, and begins with those before."""
        last = max(self._epochs(OFFSETS), default=NO_EPOCH)
        before = epoch_before(last)
        return self.files_of(OFFSETS, (epoch_before(before), before, last))

    def write_spark_files(self, record: CommitRecord) -> None:
        """Write Spark's offsets and commit of an epoch that had committed, as they were."""
        self._delete_epoch(OFFSETS, record.epoch)
        self._root.write(f"{OFFSETS}/{record.epoch}", record.offsets)
        self.write_commit(record.epoch, record.commits)

    def write_commit(self, epoch: Epoch, content: bytes) -> None:
        """Spark's file of an epoch that had committed."""
        self._delete_epoch(COMMITS, epoch)
        self._root.write(f"{COMMITS}/{epoch}", content)

    def keep_commit(self, record: CommitRecord) -> None:
        write_commit(self._folder, record)

    def kept_commit(self) -> CommitRecord | None:
        """Raises LogCorrupt."""
        return read_commit(self._folder)

    def keep_unrecorded(self, unrecorded: UnrecordedCommit) -> None:
        write_unrecorded(self._folder, unrecorded)

    def planned(self, epoch: Epoch) -> bool:
        """Whether Spark has written down what an epoch reads: in micro-batch before it begins, in real time at its
        end."""
        return epoch in self._epochs(OFFSETS)

    def committed(self) -> Epoch:
        """The last epoch that Spark has committed, and of which it knows what it was; `NO_EPOCH` before the first."""
        return max(self._epochs(COMMITS) & self._epochs(OFFSETS), default=NO_EPOCH)

    def passed(self) -> Epoch:
        """The last epoch that Spark does not run again: it plans the next one when that has committed."""
        planned = max(self._epochs(OFFSETS), default=NO_EPOCH)
        return max(self.committed(), epoch_before(planned))

    def _read(self, name: str) -> bytes | None:
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            return None


def checkpoint_at(location: str) -> Checkpoint:
    """That of a location as users write it at a command line: its escapes may stand for what they say."""
    checkpoint = Checkpoint(location)
    return checkpoint if checkpoint.is_causal() else checkpoint.unescaped() or checkpoint


def _is_whole(said: bytes) -> bool:
    """Whether one of Spark's files is whole: a line with a version first, and text behind it."""
    return said.startswith(b"v") and b"\0" not in said


def _chosen(topology: Topology, recoveries: Recoveries) -> dict[str, Any]:
    """As it is written down: nothing of causal logging, and single ones where some node has another than the query."""
    chosen: dict[str, Any] = {}
    if recoveries.default is not RecoveryKind.CAUSAL:
        chosen[_RECOVERY] = recoveries.default.value
    if any(kind is not recoveries.default for kind in recoveries.by_node.values()):
        chosen[_RECOVERIES] = {name: kind.value for name, kind in recoveries.by_name(topology).items()}
    return chosen
