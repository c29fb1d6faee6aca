"""A port for a server that takes it later, and again after it was killed."""

from __future__ import annotations

import random
import socket
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below those that systems give to outgoing connections: any program may get one of these meanwhile."""
_RANDOM: Final = random.SystemRandom()


def free_port() -> int:
    """One that nothing listens at now."""
    while True:
        port = _RANDOM.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
