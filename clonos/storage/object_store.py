"""Object stores by the location of a checkpoint: Amazon S3 and what speaks its protocol, Google's and Azure's.

Who may use a store, and where it is, comes from the environment as the store's own tools take it (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL`, roles of the host, and so on), unless `use` has said it for this process: the driver says what
Spark's session has for the same store, and the processes that it starts are told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from clonos.errors import ConfigurationError
from clonos.extras import needs
from clonos.storage.object_answers import in_short

Options: TypeAlias = Mapping[str, str]
"""Settings of one store by the client's own names, such as `access_key_id`, `endpoint`, `region`."""

# Spark's names for file systems, and the client's.
SCHEMES: Final = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfs": "abfss", "abfss": "abfss"}
_QUICK: Final = {"timeout": "20s", "connect_timeout": "5s"}
_PATIENT: Final = {"timeout": "5m", "connect_timeout": "5s"}
_RETRIES: Final = 3  # within seconds; what lasts longer, the caller waits for
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")

_said: dict[str, Options] = {}


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A bucket or container. `quick` gives a request 20 s, for small objects; `patient` five minutes."""

    name: str
    quick: Any
    patient: Any


_opened: dict[str, ObjectStore] = {}


def use(options: Mapping[str, Options]) -> None:
    """From now on these are the settings of stores in this process, by their names (`s3://bucket`); of a store without
    any, what was said before does not count."""
    for name, each in options.items():
        if each != _said.get(name, {}):
            _said[name] = dict(each)
            _opened.pop(name, None)


def said(name: str) -> dict[str, Options]:
    """What `use` was told of a store: for the processes that this one starts."""
    return {name: _said[name]} if _said.get(name) else {}


def name_of(scheme: str, authority: str) -> str:
    """The same for every scheme that means the store."""
    return f"{SCHEMES[scheme.lower()]}://{authority}"


def store_at(scheme: str, authority: str) -> ObjectStore:
    """Raises ConfigurationError. A process that forks must not have opened one before: its client has threads."""
    name = name_of(scheme, authority)
    if name not in _opened:
        _opened[name] = _open(name)
    return _opened[name]


def _open(name: str) -> ObjectStore:
    needs("obstore", f"storage in {name}")
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    config: Any = dict(_said.get(name, {}))
    keys = _keys(config)
    endpoint = config.get("endpoint") or next(
        (os.environ[key] for key in _ENDPOINTS if key in os.environ), ""
    )
    plain = {"allow_http": True} if endpoint.startswith("http://") else {}
    quick: Any = {**_QUICK, **plain}
    patient: Any = {**_PATIENT, **plain}
    retry: Any = {"max_retries": _RETRIES}
    try:
        return ObjectStore(
            name,
            *(
                from_url(
                    name, config=config, client_options=each, retry_config=retry, credential_provider=keys
                )
                for each in (quick, patient)
            ),
        )
    except (BaseError, ValueError) as error:
        raise ConfigurationError(
            f"the object store {name} cannot be used: {in_short(error)}",
            hint="Look at the bucket's name, and at the settings that the environment or Spark's session has for it",
        ) from error


def _keys(config: dict[str, str]) -> Any:
    """Keys that were said count as a whole: a token that the environment has belongs to other ones. None where none
    were said."""
    names = ("access_key_id", "secret_access_key", "session_token")
    key, secret, token = (config.pop(name, None) for name in names)
    if key is None or secret is None:
        return None

    def given() -> dict[str, Any]:
        until = datetime.now(UTC) + timedelta(hours=1)  # asked for again then
        return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": until}

    return given
