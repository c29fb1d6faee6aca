"""The determinant service of one host, as a process of its own beside the replica server.

    python -m clonos_standby.server.determinant_process --spec FILE --data DIR --parent PID

It only reads: the causal logs of this host's replicas, and for the first server those that former servers of the query
have left behind there (`cluster.left_behind`), on request. It tells its address in one line of JSON on stdout
and ends when its stdin does or its parent dies.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from clonos.errors import ClonosError
from clonos.storage.log_store import LogStore
from clonos.wire.determinant_service import DeterminantServer
from clonos.wire.tls import Tls
from clonos_standby.cluster.spec_file import read_spec
from clonos_standby.server.holdings import Holdings
from clonos_standby.server.log import Level, log
from clonos_standby.server.processes import die_with_parent
from clonos_standby.server.sidecar import PONG

_TIDY_SECONDS = 10.0


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m clonos_standby.server.determinant_process", description=__doc__
    )
    parser.add_argument("--spec", required=True, help="msgpack file with the query's spec")
    parser.add_argument("--data", required=True, help="the replica server's data directory")
    parser.add_argument("--parent", type=int, help="end when this process is not the parent any more")
    parser.add_argument("--port", type=int, default=0, help="port to prefer")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_options(argv)
    if options.parent is not None:
        die_with_parent(options.parent)
    try:
        spec = read_spec(options.spec)
        holdings = Holdings(
            Path(options.data) / "logs",
            f"replica server on {socket.gethostname()}",
            LogStore.read_only,
            left_behind=[Path(logs) for logs in spec.get("left_behind", ())],
        )
        server = DeterminantServer(
            holdings.lookup,
            spec["token"],
            query=str(spec.get("query") or ""),
            host=str(spec.get("listen") or "127.0.0.1"),
            port=options.port,
            tls=Tls.from_dict(spec.get("tls")),
        )
    except ClonosError as error:
        log("not_started", str(error), level=Level.ERROR)
        return 2
    with server:
        os.write(1, json.dumps({"address": server.address}).encode() + b"\n")
        _wait_for_end(holdings)
    return 0


def _wait_for_end(holdings: Holdings) -> None:
    """Until stdin ends. What comes there are pings, each of which is answered."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while True:
        if poll.poll(_TIDY_SECONDS * 1000):
            if not os.read(0, 4096):
                return
            os.write(1, PONG)
        holdings.forget_unused()


if __name__ == "__main__":
    sys.exit(main())
