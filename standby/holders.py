"""Asking who may know an instance's log; what the answers amount to is `core.recovery`'s matter.

The instance's own store and the conduit's kept increments are at hand. When only the replica was lost, nobody can know
more than they do: every row that left went through the conduit. When the task or the query was lost, every holder is
asked over gRPC: the replica servers for what downstream instances received, the driver for the sink logs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from clonos.core.identity import Origin
from clonos.core.recovery import HolderReply
from clonos.errors import RecoveryTimeout, Where

PORT_FILE = "determinants.port"
SERVER_FOLDER = "server-"
_ROUND_SECONDS = 5.0


def services_of_this_host(home: str) -> list[str]:
    """Addresses of its determinant services. Ports are on file because they are chosen after the spec is written."""
    found = []
    for path in sorted([Path(home, PORT_FILE), *Path(home).glob(f"{SERVER_FOLDER}*/{PORT_FILE}")]):
        with contextlib.suppress(FileNotFoundError):
            found.append(f"127.0.0.1:{int(path.read_text())}")
    return found


def ask(
    addresses: Sequence[str],
    token: str,
    query: str,
    origin: Origin,
    base: int,
    *,
    where: Where,
    deadline: float,
) -> list[HolderReply]:
    """What every determinant service knows. A service that does not answer is asked again until the deadline.

    Raises RecoveryTimeout: going on without an answer could miss what somebody depends on.
    """
    from clonos.wire.determinant_client import fetch

    until = time.monotonic() + deadline
    missing = list(addresses)
    replies: list[HolderReply] = []
    silent = ""
    while missing:
        left = until - time.monotonic()
        if left <= 0:
            raise RecoveryTimeout(
                f"no answer about the log of {origin} within {deadline:g} s from {silent}",
                where=where,
                hint="A determinant service is down or cannot be reached",
            )
        fetched = fetch(
            missing,
            token,
            origin.node,
            origin.instance,
            base,
            timeout=min(left, _ROUND_SECONDS),
            query=query,
            wait_for_ready=True,
        )
        replies += fetched.replies
        missing = [one.address for one in fetched.unreachable]
        silent = ", ".join(map(str, fetched.unreachable))
    return replies
