"""What every gRPC service does with a caller: compare the token in constant time, refuse with a code and a reason."""

from __future__ import annotations

import contextlib
import hmac
import time
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc

from clonos.errors import ConfigurationError
from clonos.wire.tls import Tls

_BIND_SECONDS: Final = 2.0


def read_token(path: Path) -> str:
    """What a token file holds, without the blanks around it."""
    try:
        token = path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the token file {path} cannot be read: {error}") from None
    if not token:
        raise ConfigurationError(f"the token file {path} is empty", hint="Put a long random text into it")
    return token


def bearer(token: str) -> list[tuple[str, str]]:
    """The metadata that shows a token."""
    return [("authorization", f"Bearer {token}")]


def abort(context: Any, code: grpc.StatusCode, message: str) -> NoReturn:
    context.abort(code, message)
    raise AssertionError("abort returned")


def check_caller(context: Any, token: str, owner: str, version: int, spoken: int) -> None:
    """Ends the call of a caller without the token, or of another version."""
    said = dict(context.invocation_metadata()).get("authorization", "")
    offered = said if isinstance(said, bytes) else str(said).encode()
    if not hmac.compare_digest(offered, f"Bearer {token}".encode()):
        abort(
            context, grpc.StatusCode.UNAUTHENTICATED, f"the token is missing or not the one of this {owner}"
        )
    if version != spoken:
        abort(
            context,
            grpc.StatusCode.INVALID_ARGUMENT,
            f"version {version} is not spoken here, {spoken} is; use the same release everywhere",
        )


def bind(server: Any, host: str, port: int, tls: Tls | None, what: str) -> int:
    """The wanted port if it becomes free soon (a predecessor may just be dying), else any."""

    def add(wanted: int) -> int:
        address = f"{host}:{wanted}"
        if tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, tls.server_credentials()))

    deadline = time.monotonic() + _BIND_SECONDS
    while port:
        with contextlib.suppress(RuntimeError):
            if add(port) == port:
                return port
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    try:
        bound = add(0)
    except RuntimeError as error:
        raise ConfigurationError(f"{what} cannot listen at {host}: {error}") from None
    if not bound:
        raise ConfigurationError(f"{what} cannot listen at {host}")
    return bound
