"""Which servers on other hosts a query has now: `<data>/named.json` on the driver's host, for an operator's commands.

It is there while the driver's own server is, whose token all servers of the query share.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clonos.errors import ConfigurationError
from clonos.json_text import parsed_json
from clonos.storage.durable_files import replace_file
from clonos.wire.tls import Tls

FILE = "named.json"


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server, by the service that runs it, and where it answers."""

    place: str
    address: str
    tls: Tls | None = None
    token_file: str = ""  # of the service


def write(data: Path, servers: Sequence[ServerEntry]) -> None:
    said = [
        {
            "place": one.place,
            "address": one.address,
            "tls": one.tls.to_dict() if one.tls is not None else None,
            "token_file": one.token_file,
        }
        for one in servers
    ]
    replace_file(data / FILE, json.dumps(said).encode())


def read(data: Path) -> tuple[ServerEntry, ...]:
    """None at all where there is no file. Raises ConfigurationError where it is not one of ours."""
    try:
        said = parsed_json((data / FILE).read_text())
        return tuple(
            ServerEntry(one["place"], one["address"], Tls.from_dict(one["tls"]), one["token_file"])
            for one in said
        )
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{data / FILE} cannot be read: {error!r}") from None
