"""Where the logs of events of a query are kept, which its checkpoint says for as long as there is one.

    <checkpoint>/clonos/events.json    sealed (`storage.sealed`): url, or "" for files beside the checkpoint; owner
    <checkpoint>/clonos/state/<node>/<instance>/events/<log>

`owner` is drawn once, so that no other checkpoint has the same rows of a database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from clonos.errors import CheckpointMismatch, ConfigurationError
from clonos.extras import needs
from clonos.protocol.ids import Origin
from clonos.storage.event_files import EventFiles
from clonos.storage.event_medium import EventMedium
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

_FILE: Final = "events.json"


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

    def medium(self, origin: Origin) -> EventMedium | None:
        """Of one instance. One that has none is never looked for: no file is where there can be no files."""
        if self.url:
            needs("psycopg", "a log of events in PostgreSQL")
            from clonos.storage.event_tables import EventTables  # with a library that few need

            return EventTables(self.url, f"{self.owner}/{origin.node}/{origin.instance}")
        if self.files is None:
            return None
        return EventFiles(f"{self.files}/state/{origin.node}/{origin.instance}/events")


def check_place(checkpoint: str, url: str) -> str:
    """Before a query that appends to logs begins: the URL as it is written down. Raises ConfigurationError."""
    if url:
        needs("psycopg", "a log of events in PostgreSQL")
        from clonos.storage.event_tables import checked_url

        return checked_url(url)
    if (folder := _folder(checkpoint)).local is None:
        raise ConfigurationError(
            f"recovery=event_log appends to files, and {folder} has only such as are written once",
            hint="Set spark.clonos.events.url to a PostgreSQL database, or choose recovery=eager",
        )
    return ""


def keep_place(checkpoint: str, url: str) -> EventPlace:
    """As checked. Raises ConfigurationError, CheckpointMismatch, StorageUnavailable."""
    folder, kept = _folder(checkpoint), EventPlace.of(checkpoint)
    if url:
        from clonos.storage.event_tables import EventTables

        EventTables(url, "").create()
    if not kept.owner:
        folder.write(_FILE, sealed({"url": url, "owner": str(uuid4())}))
        kept = EventPlace.of(checkpoint)
    if kept.url != url:
        raise CheckpointMismatch(
            f"the checkpoint has its logs of events in {kept.url or 'files beside it'}, and "
            f"spark.clonos.events.url says {url or 'nothing'}",
            hint="Set it as it was, or begin anew with a new checkpointLocation and a new sink",
        )
    return kept


def _folder(checkpoint: str) -> Folder:
    filesystem, root = resolve(checkpoint)
    return Folder(filesystem, f"{root}/clonos", tag="events")
