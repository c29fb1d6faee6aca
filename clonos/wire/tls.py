"""TLS between hosts: one authority, whose certificate every party checks, and a certificate of its own for each.

Both ends of every connection show one, so a peer without a certificate of the authority does not get as far as saying
anything. Which host it is is checked as well, by the side that connects: the name or address that was asked for has to
stand in the certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clonos.errors import ConfigurationError

if TYPE_CHECKING:  # replicas know the paths, and need neither library for that
    import ssl

    import grpc


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files: certificates of the authority, and this party's certificate (with its chain) and key."""

    ca: str
    cert: str
    key: str

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_dict(cls, said: Mapping[str, Any] | None) -> Tls | None:
        return cls(said["ca"], said["cert"], said["key"]) if said else None

    @classmethod
    def of(cls, ca: str | None, cert: str | None, key: str | None, names: str) -> Tls | None:
        """All three or none; read once, so that what cannot work is refused at once. Raises ConfigurationError."""
        if not (ca or cert or key):
            return None
        if not (ca and cert and key):
            raise ConfigurationError(
                f"of {names} some are given and some are not",
                hint="TLS needs all three: the authority to trust, and a certificate and key to show",
            )
        tls = cls(ca, cert, key)
        tls.server_context()
        return tls

    def server_context(self) -> ssl.SSLContext:
        import ssl

        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client_context(self) -> ssl.SSLContext:
        import ssl

        return self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def server_credentials(self) -> grpc.ServerCredentials:
        import grpc

        ca, cert, key = self._read()
        return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        import grpc

        ca, cert, key = self._read()
        return grpc.ssl_channel_credentials(ca, key, cert)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        import ssl

        self._read()  # for its messages: those of ssl name no file
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.ca)
            context.load_cert_chain(self.cert, self.key)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"the TLS files {self.ca}, {self.cert} and {self.key} cannot be used: {error}",
                hint="They must be PEM files, the key without a passphrase and of that certificate",
            ) from None
        return context

    def _read(self) -> tuple[bytes, ...]:
        try:
            return tuple(Path(path).read_bytes() for path in (self.ca, self.cert, self.key))
        except OSError as error:
            raise ConfigurationError(f"a TLS file cannot be read: {error}") from None


def channel(address: str, tls: Tls | None, options: list[tuple[str, Any]]) -> grpc.Channel:
    """To a gRPC service, with TLS where there is any."""
    import grpc

    if tls is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, tls.channel_credentials(), options)
