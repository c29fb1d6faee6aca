"""The sockets at which conduits and drivers reach a replica server."""

from __future__ import annotations

import errno
import os
import socket

from clonos.errors import ConfigurationError


def bind_unix(path: str) -> socket.socket:
    """Listens at the path, in place of a predecessor that has left its socket behind, but not of a living one."""
    if len(os.fsencode(path)) > 100:
        raise ConfigurationError(f"the socket path {path} is longer than 100 bytes")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise ConfigurationError(f"the socket {path} cannot be made: {error}") from None
        if _listening(path):
            raise ConfigurationError(f"another replica server listens at {path}") from None
        os.unlink(path)
        listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(512)
    return listener


def _listening(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


def bind_tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host or "127.0.0.1", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen at {address!r}: {error}") from None
    listener.listen(512)
    return listener
