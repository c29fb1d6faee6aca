"""Where a page of metrics answers, and whom.

A page has names of operators, counts and times, and nothing of any row. On the host itself it answers everyone, in
plain HTTP. At an address that others reach it answers those who show a token, over TLS where the query has
certificates; that everyone there may read it has to be said.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from clonos.errors import ConfigurationError
from clonos.wire.tls import Tls

LOOPBACK: Final = "127.0.0.1"
ANYONE: Final = "none"
"""Instead of a token file: no token is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPlace:
    """One page. Port 0 is any free one."""

    host: str = LOOPBACK
    port: int = 0
    token: str = ""  # to be shown as `Authorization: Bearer`; empty: none is asked for
    tls: Tls | None = None
    shown_as: str = ""  # the page of the replica service, where this one is a part of that

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigurationError(f"a page of metrics cannot be at port {self.port}")

    @classmethod
    def of(cls, host: str, port: int, token_file: str, tls: Tls | None, setting: str) -> MetricsPlace:
        """By the settings. `setting`: what the token file is named by, for the hint. Raises ConfigurationError."""
        from clonos.wire.boundary import read_token  # gRPC, which a replica server does without

        if not token_file and not is_loopback(host):
            raise ConfigurationError(
                f"the metrics at {host} would be open to everyone who reaches that address",
                hint=f"Name a file with a token with {setting}, or say {setting}={ANYONE}",
            )
        token = read_token(Path(token_file)) if token_file not in ("", ANYONE) else ""
        return cls(host=host, port=port, token=token, tls=None if is_loopback(host) else tls)

    def to_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "port": self.port,
            "token": self.token,
            "tls": self.tls.to_dict() if self.tls is not None else None,
            "shown_as": self.shown_as,
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any] | None) -> MetricsPlace | None:
        """Raises ConfigurationError where it is not one."""
        if said is None:
            return None
        try:
            return cls(**{**said, "tls": Tls.from_dict(said.get("tls"))})
        except (TypeError, KeyError) as error:
            raise ConfigurationError(f"{said!r} does not say where a page of metrics is: {error}") from None


def is_loopback(host: str) -> bool:
    """Whether only this host reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
