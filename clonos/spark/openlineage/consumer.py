"""Where events of OpenLineage go: to the consumer that a setting names, or as OpenLineage's configuration says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from clonos.errors import ConfigurationError
from clonos.extras import installed, missing

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

SETTING: Final = "spark.clonos.openlineage"
TAKES: Final = "false, true, or http(s)://HOST:PORT"
_PACKAGE: Final = "openlineage.client"


@dataclass(frozen=True, slots=True)
class Consumer:
    """`url` is empty where the client's own configuration says where events go."""

    url: str = ""


def consumer_of(text: str) -> Consumer | None:
    """For the setting; None where no events are asked for. Raises ValueError."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return Consumer() if text.lower() == "true" else None
    said = urlsplit(text)
    if said.scheme not in ("http", "https") or not said.hostname:
        raise ValueError(text)
    return Consumer(text)


def client_for(consumer: Consumer) -> OpenLineageClient:
    """Raises ConfigurationError where the package is not installed, or its configuration says nothing or nonsense."""
    if not installed(_PACKAGE):
        raise missing("openlineage", SETTING)
    from openlineage.client import OpenLineageClient

    config = {"transport": _transport(consumer.url)} if consumer.url else None
    try:
        client = OpenLineageClient(config=config)
        said = client.config.transport or {}
    except Exception as error:  # whatever it raises at what it is told
        user, at, _ = urlsplit(consumer.url).netloc.rpartition("@")
        why = str(error).replace(user + at, "")  # it may have a password
        raise ConfigurationError(
            f"OpenLineage's client cannot be set up: {type(error).__name__}: {why}",
            hint="Correct openlineage.yml, or the OPENLINEAGE_* of the driver's environment",
        ) from error
    if client.transport.kind == "console" and not said.get("type"):
        raise ConfigurationError(
            f"{SETTING} is true, and OpenLineage's client is not told where events go",
            hint="Set OPENLINEAGE_URL=http://HOST:PORT in the driver's environment, write an openlineage.yml, or set "
            f"{SETTING}=http://HOST:PORT",
        )
    return client


def _transport(url: str) -> dict[str, Any]:
    """What is behind host and port is the endpoint. The key is where the client itself looks for it."""
    parts = urlsplit(url)
    made: dict[str, Any] = {"type": "http", "url": f"{parts.scheme}://{parts.netloc}"}
    endpoint = parts.path.lstrip("/") + (f"?{parts.query}" if parts.query else "")
    if endpoint:
        made["endpoint"] = endpoint
    key = os.environ.get("OPENLINEAGE_API_KEY")
    return {**made, "auth": {"type": "api_key", "apiKey": key}} if key else made
