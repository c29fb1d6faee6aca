"""Where the logs of events of a query are kept, which its checkpoint says for as long as there is one.

    <checkpoint>/clonos/events.json    sealed (`storage.sealed`): url, or "" for files beside the checkpoint; owner
    <checkpoint>/clonos/state/<node>/<instance>/events/<log>

Rows of a database are those of an `owner`, which is drawn once for a checkpoint; the database has, as the first entry
of "events.json", what that file is known by. A copy draws another owner: of two that go on, neither may take what the
other one has done for its own, and what is put back from a copy, with its sink, has not done what came later. So what a
copy begins with is in its files.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from clonos.errors import CheckpointMismatch, ConfigurationError
from clonos.extras import needs
from clonos.protocol.ids import Origin
from clonos.storage.event_files import EventFiles
from clonos.storage.event_medium import NO_EVENTS, EventMedium
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

if TYPE_CHECKING:
    from clonos.storage.event_tables import EventTables

LOG = logging.getLogger("clonos")
_FILE: Final = "events.json"
_NEEDED_FOR: Final = "a log of events in PostgreSQL"


@dataclass(frozen=True, slots=True)
class EventPlace:
    """Of one query. `url` is empty where logs are files beside the checkpoint, in `files`; None where there can be
    none, as its storage is not appended to."""

    url: str
    owner: str
    files: str | None

    @classmethod
    def of(cls, checkpoint: str) -> EventPlace:
        """As the checkpoint says, and files beside it where it says nothing. Raises CheckpointMismatch."""
        folder = _folder(checkpoint)
        try:
            said = unsealed(folder.read(_FILE), folder.path(_FILE))
        except FileNotFoundError:
            said = {"url": "", "owner": ""}
        return cls(said["url"], said["owner"], folder.local)

    def medium(self, origin: Origin) -> EventMedium:
        """Of one instance."""
        if self.url:
            return _tables(self.url, f"{self.owner}/{origin.node}/{origin.instance}")
        if self.files is None:
            return NO_EVENTS
        return EventFiles(f"{self.files}/state/{origin.node}/{origin.instance}/events")


def check_place(checkpoint: str, url: str) -> str:
    """Before a query that appends to logs begins: the URL as it is written down. Raises ConfigurationError,
    StorageUnavailable."""
    if url:
        needs("psycopg", _NEEDED_FOR)
        from clonos.storage.event_tables import checked_url

        url = checked_url(url)
        _tables(url, "").create()
        return url
    if (folder := _folder(checkpoint)).local is None:
        raise ConfigurationError(
            f"recovery=event_log appends to files, and {folder} has only such as are written once",
            hint="Set spark.clonos.events.url to a PostgreSQL database, or choose recovery=eager",
        )
    return ""


def keep_place(checkpoint: str, url: str) -> EventPlace:
    """As checked. Raises CheckpointMismatch, StorageUnavailable."""
    folder, kept = _folder(checkpoint), EventPlace.of(checkpoint)
    if kept.owner and kept.url != url:
        raise CheckpointMismatch(
            f"the checkpoint has its logs of events in {kept.url or 'files beside it'}, and "
            f"spark.clonos.events.url says {url or 'nothing'}",
            hint="Set it as it was, or begin anew with a new checkpointLocation and a new sink",
        )
    if kept.owner and (not url or _known_as(kept) == _identity(folder, checkpoint)):
        return kept
    if kept.owner:
        LOG.warning(
            "the checkpoint in %s was copied, or restored from a copy: of what the database has of an open epoch it "
            "takes nothing",
            folder,
        )
    folder.write(_FILE, sealed({"url": url, "owner": str(uuid4())}))
    made = EventPlace.of(checkpoint)
    if url:
        _tables(url, made.owner).append(_FILE, 0, _identity(folder, checkpoint))
    return made


def _tables(url: str, owner: str) -> EventTables:
    needs("psycopg", _NEEDED_FOR)
    from clonos.storage.event_tables import EventTables  # with a library that few need

    return EventTables(url, owner)


def _known_as(kept: EventPlace) -> bytes:
    try:
        return _tables(kept.url, kept.owner).read(_FILE, 0)
    except FileNotFoundError:
        return b""


def _identity(folder: Folder, checkpoint: str) -> bytes:
    """Of the file that says where logs are: what a copy of it has not, on a host's own storage, nor one that was put
    back in its place. It stays the same where a folder above it gets another name. Elsewhere it is where the checkpoint
    is."""
    if folder.local is None:
        return folder.identity(checkpoint).encode()
    stat = os.stat(os.path.join(folder.local, _FILE))
    return f"{stat.st_ino} {stat.st_ctime_ns}".encode()


def _folder(checkpoint: str) -> Folder:
    filesystem, root = resolve(checkpoint)
    return Folder(filesystem, f"{root}/clonos", tag="events")
