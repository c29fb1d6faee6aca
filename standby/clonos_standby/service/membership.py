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
from clonos.storage.durable_names import fsync_directory

SET_ASIDE: Final = "set-aside"
_MEMBERSHIP: Final = "membership"
_LOGS: Final = "logs"


def begin_membership(data: Path, token: str) -> bool:
    """The driver asks for a server under this token; whether logs were set aside. While no server runs here. Raises
    StorageUnavailable."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        kept = _kept(data)
        moved = sets_aside(kept, token) and (data / _LOGS).exists()
        if moved:
            shutil.rmtree(data / SET_ASIDE, ignore_errors=True)
            os.replace(data / _LOGS, data / SET_ASIDE)
        if token and token != kept:
            _keep(data, token)
    except OSError as error:
        raise StorageUnavailable(f"the membership of the logs in {data} cannot be kept: {error}") from error
    return moved


def _kept(data: Path) -> str | None:
    try:
        return (data / _MEMBERSHIP).read_text()
    except FileNotFoundError:
        return None


def _keep(data: Path, token: str) -> None:
    """Durably, and after the logs have moved."""
    fsync_directory(str(data))
    fresh = data / (_MEMBERSHIP + ".new")
    with fresh.open("w") as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, data / _MEMBERSHIP)
    fsync_directory(str(data))
