"""Asking the holders of an instance's log; what the answers amount to is `protocol.recovery.causal.longest_prefix`'s
matter.

The instance's own store and the conduit's kept increments are at hand. When only the replica was lost, no other holder
can have more than these two: every row that left went through the conduit. When the task or the query was lost, every
holder is asked over gRPC: the replica servers for what downstream instances received, the driver for the sink logs. A
holder that does not answer, or only in part, is asked again (`protocol.recovery.causal.asking`).
"""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clonos.errors import StorageUnavailable, Where
from clonos.json_text import parsed_json
from clonos.protocol.ids import LogOffset, Origin
from clonos.protocol.recovery.causal.asking import Asking
from clonos.protocol.recovery.causal.holding import HolderReply
from clonos.storage.durable_files import replace_file

if TYPE_CHECKING:  # the server imports this before it binds its socket
    from clonos_standby.cluster.spec import QuerySpec

PORT_FILE = "determinants.port"
HOLDERS_FILE = "holders.json"
SERVER_FOLDER = "server-"
_VERSION = 1
_ROUND_SECONDS = 5.0


def server_folder(data: Path, number: int) -> Path:
    """The data directory of a server on this host: the first one's holds those of the others."""
    return data / f"{SERVER_FOLDER}{number}" if number else data


def server_folders(data: Path) -> dict[int, Path]:
    """The folders of all servers that the query has, or had, on this host, by number."""
    others = (folder.name.removeprefix(SERVER_FOLDER) for folder in data.glob(f"{SERVER_FOLDER}*"))
    numbers = sorted(int(number) for number in others if number.isdecimal())
    return {number: server_folder(data, number) for number in (0, *numbers)}


def tell(data: Path, addresses: Sequence[str]) -> None:
    """Puts down where all determinant services of the query are, for the replicas of this data directory."""
    said = {"version": _VERSION, "crc32": _checksum(addresses), "addresses": list(addresses)}
    replace_file(data / HOLDERS_FILE, json.dumps(said).encode())


def services(spec: QuerySpec) -> list[str]:
    """Where determinant services are now. Raises StorageUnavailable where that cannot be read: then there may be more.

    With servers on several hosts the driver says so, and who is lost is not among them; on one host their ports are on
    file, because they are chosen after the spec is written.
    """
    if spec.told or Path(spec.data, HOLDERS_FILE).exists():
        return _told(Path(spec.data, HOLDERS_FILE))
    found = list(spec.determinants)
    for number in range(spec.servers):
        folder = server_folder(Path(spec.home), number)
        try:
            found.append(f"127.0.0.1:{int((folder / PORT_FILE).read_text())}")
        except (OSError, ValueError) as error:
            raise StorageUnavailable(
                f"where the determinant service of server {number} is cannot be read from {folder / PORT_FILE}: {error}"
            ) from error
    return found


def _told(path: Path) -> list[str]:
    try:
        said = parsed_json(path.read_text())
        if isinstance(said, list):  # as it was written before it had a version
            return [str(address) for address in said]
        addresses = [str(address) for address in said["addresses"]]
        if said["version"] != _VERSION or said["crc32"] != _checksum(addresses):
            raise ValueError("it fails its checksum, or is of another version")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageUnavailable(
            f"where the determinant services are cannot be read from {path}: {error}",
            hint="The driver writes it anew when a server is lost or comes back",
        ) from error
    return addresses


def _checksum(addresses: Sequence[str]) -> int:
    return zlib.crc32("\n".join(addresses).encode())


def ask(
    spec: QuerySpec, origin: Origin, base: LogOffset, *, where: Where, spent: float = 0.0
) -> list[HolderReply]:
    """What every determinant service knows. A service that does not answer is asked again until the deadline for a
    recovery, unless the driver gives it up meanwhile. `spent` are the seconds that the recovery has taken so far; for
    one round there is always time.

    Raises RecoveryTimeout: going on without an answer could miss determinants that an instance or a sink depends on.
    """
    from clonos.wire.determinant_client import fetch

    deadline = round(spec.settings.recovery_deadline * 1e6)
    spent = min(spent, max(spec.settings.recovery_deadline - _ROUND_SECONDS, 0.0))
    asking = Asking(origin, now=_now() - round(spent * 1e6), deadline=deadline, where=where)
    patience = _ROUND_SECONDS
    while True:
        try:
            missing = asking.missing(services(spec))
        except StorageUnavailable as error:
            asking.refused("the list of holders", error.message)
        else:
            if not missing:
                return asking.replies
            fetched = fetch(
                missing,
                spec.token,
                origin.node,
                origin.instance,
                base,
                timeout=min(asking.left(_now()) / 1e6, patience),
                query=spec.query,
                tls=spec.tls,
                wait_for_ready=True,
            )
            for address, reply in fetched.replies.items():
                asking.answered(address, reply)
            for one in fetched.unreachable:
                asking.refused(one.address, one.reason)
            if not fetched.unreachable:
                continue
            patience *= 2  # a store may take longer to read
        left = asking.left(_now())
        time.sleep(min(asking.pause() * random.uniform(0.5, 1.0), left) / 1e6)


def _now() -> int:
    return time.monotonic_ns() // 1000
