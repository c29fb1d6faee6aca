"""Asking who may know an instance's log; what the answers amount to is `core.recovery`'s matter.

The instance's own store and the conduit's kept increments are at hand. When only the replica was lost, nobody can know
more than they do: every row that left went through the conduit. When the task or the query was lost, every holder is
asked over gRPC: the replica servers for what downstream instances received, the driver for the sink logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clonos.core.identity import Origin
from clonos.core.recovery import HolderReply
from clonos.errors import RecoveryTimeout, Where

if TYPE_CHECKING:  # the server imports this before it binds its socket
    from standby.spec import QuerySpec

PORT_FILE = "determinants.port"
HOLDERS_FILE = "holders.json"
SERVER_FOLDER = "server-"
_ROUND_SECONDS = 5.0


def tell(data: Path, addresses: Sequence[str]) -> None:
    """Puts down where all determinant services of the query are, for the replicas of this data directory."""
    fresh = data / (HOLDERS_FILE + ".new")
    fresh.write_text(json.dumps(list(addresses)))
    os.replace(fresh, data / HOLDERS_FILE)


def services(spec: QuerySpec) -> list[str]:
    """Where determinant services are now.

    With servers on several hosts the driver says so, and who is lost is not among them; on one host their ports are on
    file, because they are chosen after the spec is written.
    """
    with contextlib.suppress(FileNotFoundError):
        return list(json.loads(Path(spec.data, HOLDERS_FILE).read_text()))
    found = list(spec.determinants)
    for path in sorted([Path(spec.home, PORT_FILE), *Path(spec.home).glob(f"{SERVER_FOLDER}*/{PORT_FILE}")]):
        with contextlib.suppress(FileNotFoundError):
            found.append(f"127.0.0.1:{int(path.read_text())}")
    return found


def ask(spec: QuerySpec, origin: Origin, base: int, *, where: Where) -> list[HolderReply]:
    """What every determinant service knows. A service that does not answer is asked again until the deadline for a
    recovery, unless the driver gives it up meanwhile.

    Raises RecoveryTimeout: going on without an answer could miss what somebody depends on.
    """
    from clonos.wire.determinant_client import fetch

    deadline = spec.settings.recovery_deadline
    until = time.monotonic() + deadline
    answered: set[str] = set()
    replies: list[HolderReply] = []
    silent = ""
    while missing := [address for address in services(spec) if address not in answered]:
        left = until - time.monotonic()
        if left <= 0:
            raise RecoveryTimeout(
                f"no answer about the log of {origin} within {deadline:g} s from {silent}",
                where=where,
                hint="A determinant service is down or cannot be reached",
            )
        fetched = fetch(
            missing,
            spec.token,
            origin.node,
            origin.instance,
            base,
            timeout=min(left, _ROUND_SECONDS),
            query=spec.query,
            tls=spec.tls,
            wait_for_ready=True,
        )
        silent = ", ".join(map(str, fetched.unreachable))
        answered |= set(missing) - {one.address for one in fetched.unreachable}
        replies += fetched.replies
    return replies
