"""A running query, as seen from another process: found by its checkpoint, asked at its replica server.

Neither Spark nor a JVM is needed: the checkpoint says what the query is and on which host it was started last, the data
directory there says how to reach its server (`clonos_standby.server.running`).
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clonos.errors import ConfigurationError, NotRunning
from clonos.protocol.ids import Origin
from clonos.spark.checkpoint import Checkpoint, checkpoint_at
from clonos.wire.admin_messages import GetStatus, Status
from clonos.wire.server_status import PlacedStatus, ServersStatus, merged, placed
from clonos_standby.cluster import server_directory
from clonos_standby.cluster.server_directory import ServerEntry
from clonos_standby.replica.holders import server_folders
from clonos_standby.server import admin, running
from clonos_standby.server.running import Running

PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LiveNode:
    """An operator or sink, which has replicas; a source has none."""

    number: int
    name: str
    kind: str
    parallelism: int


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A replica server: of a replica service, or else on this host, with its data directory."""

    entry: ServerEntry
    token: str
    data: Path | None = None

    @property
    def place(self) -> str | None:
        """The service that runs it; None on this host."""
        return self.entry.place or None

    def status(self) -> PlacedStatus:
        """Raises OSError where it does not answer."""
        entry = self.entry
        answer = admin.ask(entry.address, self.token, GetStatus(), Status, PATIENCE_SECONDS, entry.tls)
        return placed(answer.said, self.place)


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """See the module. `others` are the servers of standbys."""

    checkpoint: Checkpoint
    query: str
    nodes: tuple[LiveNode, ...]
    data: Path
    running: Running
    others: tuple[LiveServer, ...] = ()

    @property
    def servers(self) -> tuple[LiveServer, ...]:
        """By number, the first one's first."""
        return (LiveServer(ServerEntry("", self.running.socket), self.running.token, self.data), *self.others)

    def statuses(self) -> list[tuple[LiveServer, PlacedStatus]]:
        """What the replica servers say of themselves and their replicas. Raises NotRunning where the first does not
        answer; another one may just be starting again."""
        first = self.servers[0]
        try:
            found = [(first, first.status())]
        except OSError as error:
            raise NotRunning(
                f"the replica server of {self.checkpoint.location} (process {self.running.pid}) does not answer: "
                f"{error}",
                hint=f"If it has just died its driver starts it again; it writes to {self.data / 'server.err'}",
            ) from None
        for other in self.others:
            with contextlib.suppress(OSError):
                found.append((other, other.status()))
        return found

    def status(self) -> ServersStatus:
        """All of that in one."""
        return merged(*(said for _, said in self.statuses()))

    def bytes_of(self, kind: str, origin: Origin) -> int:
        """Size on disk of the `logs` or the `state` of an instance, at all servers of this host; files that come and go
        are not missed."""
        folders = server_folders(self.data).values()
        return sum(_file_bytes(entry) for data in folders for entry in _files(data / kind / str(origin)))

    def spilled(self) -> dict[Origin, int] | None:
        """Bytes of the conduits' in-flight logs that are on this host's disk.

        A spill file has no name from the moment it is open, so it is found at the process that has it open; None where
        /proc does not show that.
        """
        found: dict[Origin, int] = {}
        folder = f"{self.data / 'spill'}{os.sep}"
        for pid in self.running.driver:
            try:
                entries = list(Path(f"/proc/{pid}/fd").iterdir())
            except OSError:
                return None
            for entry in entries:
                with contextlib.suppress(OSError):
                    target = os.readlink(entry)
                    if target.startswith(folder):
                        node, instance, *_ = target.removeprefix(folder).split("-")
                        origin = Origin.of(int(node), int(instance))
                        found[origin] = found.get(origin, 0) + entry.stat().st_size
        return found


def find(location: str) -> LiveQuery:
    """The running query of a checkpoint. Raises NotRunning, CheckpointMismatch (none of ours), ConfigurationError
    (another user's)."""
    checkpoint = checkpoint_at(location)
    return find_in(checkpoint, location, *checkpoint.shape())


def find_in(checkpoint: Checkpoint, location: str, query: str, document: Mapping[str, Any]) -> LiveQuery:
    """`find` of a checkpoint that was read: the query's id and its topology's document."""
    place = checkpoint.place()
    if place is None:
        raise NotRunning(f"the query of {location} has never been started by this version")
    host, data = place
    try:
        found = running.read(Path(data))
    except PermissionError:
        raise ConfigurationError(
            f"the query of {location} belongs to user {_owner(data)}", hint="Ask as that user"
        ) from None
    if found is None:
        elsewhere = host != platform.node()
        raise NotRunning(
            f"the query of {location} is not running" + (" on this host" if elsewhere else ""),
            hint=f"It was started last on {host}"
            + ("; ask there" if elsewhere else f", with its data in {data}"),
        )
    nodes = tuple(
        LiveNode(node["number"], node["name"], node["kind"], node["parallelism"])
        for node in document["nodes"]
        if node["kind"] != "source"
    )
    _, *further = server_folders(Path(data)).values()
    here = [(folder, running.read(folder)) for folder in further]
    others = (
        *(
            LiveServer(ServerEntry("", one.socket), one.token, folder)
            for folder, one in here
            if one is not None
        ),
        *(LiveServer(one, found.token) for one in server_directory.read(Path(data))),
    )
    return LiveQuery(checkpoint, query, nodes, Path(data), found, others)


def _files(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def _file_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _owner(path: str) -> str:
    import pwd

    try:
        number = os.stat(path).st_uid
    except OSError:
        return "who started it"
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
