"""Requests to a replica server from its driver, or from a command of an operator's: one connection, one answer."""

from __future__ import annotations

import socket
from typing import TypeVar

from clonos.errors import ProtocolError, StorageUnavailable
from clonos.wire.admin_messages import AdminAnswer, AdminRequest
from clonos.wire.framing import FrameType, read_frame, to_bytes
from clonos.wire.messages import Error, pack_admin, parse, parse_admin_answer
from clonos.wire.tls import Tls

AnswerT = TypeVar("AnswerT", bound=AdminAnswer)


def ask(
    address: str,
    token: str,
    request: AdminRequest,
    expected: type[AnswerT],
    timeout: float,
    tls: Tls | None = None,
) -> AnswerT:
    """The answer of the server at a socket's path or at `HOST:PORT`, which is of the `expected` kind.

    Raises OSError where no server answers, ProtocolError or StorageUnavailable where the server refuses.
    """
    with _connected(address, timeout, tls) as sock:
        sock.sendall(to_bytes(pack_admin(token, request)))  # a TLS socket gathers nothing
        frame = read_frame(sock)
    if frame is None:
        raise ConnectionResetError("the server closed the connection")
    if frame.type is FrameType.ERROR:
        error = parse(frame)
        assert isinstance(error, Error)
        if error.retryable:
            raise StorageUnavailable(f"the replica server cannot do that now: {error.message}")
        raise ProtocolError(f"the replica server refused: {error.message}")
    answer = parse_admin_answer(frame)
    if not isinstance(answer, expected):
        raise ProtocolError(
            f"the replica server answered {type(request).__name__} with {type(answer).__name__}"
        )
    return answer


def _connected(address: str, timeout: float, tls: Tls | None) -> socket.socket:
    if address.startswith("/"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout)
    if tls is None:
        return sock
    try:
        return tls.client_context().wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise
