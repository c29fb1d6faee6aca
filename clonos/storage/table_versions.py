"""The versions of a table that stands beside a stream, in the checkpoint.

    <checkpoint>/clonos/tables/<node>/<version>     the rows, an Arrow IPC stream; named after a digest of it
    <checkpoint>/clonos/tables/<node>/versions      JSON, sealed: the versions that are kept, the newest one last

The driver writes a version before it says that there is one, and an instance records which one it has used: so it is
found again when that is repeated. A version that has been replaced is removed when all has committed that may have
used it.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa

from clonos.errors import StorageUnavailable
from clonos.protocol.ids import Epoch, NodeId
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

FOLDER: Final = "tables"
_VERSIONS: Final = "versions"
_COMMITS: Final = 2
"""The next epoch may have begun before the commit of one."""
_SECONDS: Final = 60.0
"""An instance goes on with a version for a while without asking, and clocks of hosts differ."""


@dataclass(frozen=True, slots=True)
class _Version:
    name: str
    replaced_at: float | None = None
    """Seconds since 1970; None of the newest one."""
    committed: int = 0
    """The last epoch that had committed then."""

    def until(self, now: float, committed: Epoch) -> _Version:
        """It has been replaced, now or before."""
        return self if self.replaced_at is not None else replace(self, replaced_at=now, committed=committed)

    def is_needed(self, committed: Epoch, now: float) -> bool:
        return (
            self.replaced_at is None
            or committed < self.committed + _COMMITS
            or now < self.replaced_at + _SECONDS
        )


class TableVersions:
    """Of one table: the node that uses it."""

    def __init__(self, checkpoint: str, node: NodeId) -> None:
        self._checkpoint = checkpoint
        self._at = f"{FOLDER}/{node}"

    def newest(self) -> str:
        """Raises StorageUnavailable."""
        return self._read()[-1].name

    def exist(self) -> bool:
        """Whether one was published. Raises StorageUnavailable."""
        return bool(self._known())

    def load(self, version: str) -> pa.Table:
        """Raises StorageUnavailable."""
        folder = self._folder()
        name = f"{self._at}/{version}"
        try:
            raw = folder.read(name)
        except FileNotFoundError:
            raise StorageUnavailable(
                f"the version of a table is not there: {folder.path(name)}",
                hint="Restore the checkpoint's folder clonos as a whole",
            ) from None
        if _digest(raw) != version:
            raise StorageUnavailable(
                f"the version of a table is damaged: {folder.path(name)}",
                hint="Restore it from a copy of the checkpoint",
            )
        with pa.ipc.open_stream(raw) as reader:
            return reader.read_all()

    def publish(self, table: pa.Table, *, committed: Epoch, now: float) -> bool:
        """What the table is from now on; whether it is another version than before. `now` is in seconds since 1970.
        Raises StorageUnavailable."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        raw = sink.getvalue().to_pybytes()
        folder, name = self._folder(), _digest(raw)
        known = self._known()
        is_new = not known or known[-1].name != name
        if is_new:
            folder.write(f"{self._at}/{name}", raw)
            known = [each.until(now, committed) for each in known if each.name != name]
            known.append(_Version(name))
        kept = [each for each in known if each.is_needed(committed, now)]
        if is_new or kept != known:
            folder.write(f"{self._at}/{_VERSIONS}", sealed({"versions": [asdict(each) for each in kept]}))
        for gone in {each.name for each in known} - {each.name for each in kept}:
            folder.delete(f"{self._at}/{gone}")
        return is_new

    def _known(self) -> list[_Version]:
        try:
            return self._read()
        except FileNotFoundError:
            return []

    def _read(self) -> list[_Version]:
        folder = self._folder()
        name = f"{self._at}/{_VERSIONS}"
        said: list[dict[str, Any]] = unsealed(folder.read(name), folder.path(name))["versions"]
        return [_Version(**each) for each in said]

    def _folder(self) -> Folder:
        filesystem, root = resolve(self._checkpoint)
        return Folder(filesystem, f"{root}/clonos", tag=f"table-{uuid.uuid4().hex}")


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]
