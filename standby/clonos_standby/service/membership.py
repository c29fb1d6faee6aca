"""The membership of a query's logs on this host (`clonos.protocol.roles.membership` has the rule).

<data>/membership     the token under which the logs were begun
<data>/logs           the causal logs of the instances that have a replica here
<data>/set-aside      logs of an earlier membership, the last only: to be looked at by people
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from clonos.errors import StorageUnavailable
from clonos.protocol.roles.membership import sets_aside
from clonos.storage.durable_files import fsync_directory
from clonos.storage.folder import Folder, resolve

SET_ASIDE: Final = "set-aside"
_MEMBERSHIP: Final = "membership"
_LOGS: Final = "logs"


def begin_membership(data: Path, token: str) -> bool:
    """The driver asks for a server under this token; whether logs were set aside. While no server runs here. Raises
    StorageUnavailable."""
    folder = Folder(*resolve(str(data)), tag=f"membership-{os.getpid()}")
    kept = _kept(folder)
    try:
        data.mkdir(parents=True, exist_ok=True)
        moved = sets_aside(kept, token) and (data / _LOGS).exists()
        if moved:
            shutil.rmtree(data / SET_ASIDE, ignore_errors=True)
            os.replace(data / _LOGS, data / SET_ASIDE)
            fsync_directory(str(data))  # before the token says so
    except OSError as error:
        raise StorageUnavailable(f"logs in {data} cannot be set aside: {error}") from error
    if token and token != kept:
        folder.write(_MEMBERSHIP, token.encode())
    return moved


def _kept(folder: Folder) -> str | None:
    try:
        return folder.read(_MEMBERSHIP).decode()
    except FileNotFoundError:
        return None
