"""The logs of servers on this host that are not started any more: standbys were switched off between two starts.

An instance may have gone on there: the newest of its log, and of what it received, is then in the data directory of a
server that the driver does not start. The first server's determinant service answers for those directories, too, and
instances begin by the rules for ones that may have run elsewhere (`protocol.recovery.causal.retrieval`). When an epoch
has committed that such a driver has run, they are removed (`protocol.roles.query_coordinator`): no replica truncates
them, and damage to them one day would count.

What is on hosts that a query does not name any more is not asked (docs/upgrading.md).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from clonos.errors import StorageUnavailable
from clonos.storage import salvage
from clonos.storage.disk_errors import disk
from clonos_standby.replica.holders import server_folders
from clonos_standby.server.running import lock_data

_GONE: Final = "logs-to-remove"


def left_behind(data: Path, servers: int) -> tuple[str, ...]:
    """The folders with the logs of instances that servers of this data directory beyond the first `servers` have left.

    A server of an earlier driver that is just dying is waited for, so that no replica writes there any more. A store
    that was just being replaced is finished here, since its owner does not come back. Raises StorageUnavailable, and
    ConfigurationError where such a server goes on."""
    with disk(f"looking for the logs of former servers in {data}", corrupt=StorageUnavailable):
        former = (folder for number, folder in server_folders(data).items() if number >= servers)
        return tuple(str(folder / "logs") for folder in former if _is_left(folder))


def forget(logs: Path) -> None:
    """Remove one of those folders, first its name: a determinant service that reads there finds all that there was, or
    nothing. Raises StorageUnavailable."""
    with disk(f"removing the logs of a former server in {logs}", corrupt=StorageUnavailable):
        gone = logs.with_name(_GONE)
        shutil.rmtree(gone, ignore_errors=True)  # of a driver that died over it
        if logs.exists():
            logs.rename(gone)
            shutil.rmtree(gone)


def _is_left(folder: Path) -> bool:
    """Whether there is the store of an instance."""
    if not (folder / "logs").is_dir():
        return False
    lock = lock_data(folder)
    try:
        found = salvage.places(folder / "logs")
        for store in found:
            salvage.finish(str(store))
    finally:
        os.close(lock)
    return bool(found)
