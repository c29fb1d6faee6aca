"""Requests to a replica server from its driver, or from whoever operates the query: one connection, one answer."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from clonos.errors import ProtocolError, StorageUnavailable
from clonos.wire.framing import FrameType, read_frame, send_frames
from clonos.wire.messages import Error, pack_admin, parse, parse_json


def ask(path: str, token: str, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """The answer. Raises OSError where nobody answers, ProtocolError or StorageUnavailable where the server refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout)
        sock.connect(path)
        send_frames(sock, [pack_admin(token, request)])
        frame = read_frame(sock)
    if frame is None:
        raise ConnectionResetError("the server closed the connection")
    if frame.type is FrameType.ERROR:
        error = parse(frame)
        assert isinstance(error, Error)
        if error.retryable:
            raise StorageUnavailable(f"the replica server cannot do that now: {error.message}")
        raise ProtocolError(f"the replica server refused: {error.message}")
    return parse_json(frame.payload, frame.type.name)
