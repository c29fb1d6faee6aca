"""Which hosts count in a query, in its checkpoint (`clonos.protocol.roles.membership` has the rule).

    <checkpoint>/clonos/hosts/<generation>    JSON: format version, checksum, the membership of each host

A start has a file of its own, so that a driver that has been overtaken changes no other start's; the last few are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from clonos.protocol.fence import Generation
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

FOLDER: Final = "hosts"
KEPT: Final = 4


class HostMemberships:
    """The files of one checkpoint."""

    def __init__(self, checkpoint: str) -> None:
        filesystem, root = resolve(checkpoint)
        self._folder = Folder(filesystem, f"{root}/clonos", tag="hosts")

    def last(self) -> dict[str, str]:
        """Those of the last start that kept any; none before the first. Raises CheckpointMismatch."""
        starts = self._starts()
        if not starts:
            return {}
        name = _name(starts[-1])
        body = unsealed(self._folder.read(name), self._folder.path(name))
        return {str(host): str(token) for host, token in body["hosts"].items()}

    def keep(self, generation: Generation, memberships: Mapping[str, str]) -> None:
        """Durably. Raises StorageUnavailable."""
        self._folder.write(_name(generation), sealed({"hosts": dict(memberships)}))
        for start in self._starts():
            if start <= generation - KEPT:
                self._folder.delete(_name(start))

    def _starts(self) -> list[Generation]:
        return sorted(Generation(int(name)) for name in self._folder.sizes(FOLDER) if name.isdecimal())


def _name(generation: Generation) -> str:
    return f"{FOLDER}/{generation:020d}"
