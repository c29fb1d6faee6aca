"""Files that a command writes where its user says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clonos.errors import ConfigurationError


@contextmanager
def written_to(path: Path, option: str) -> Iterator[None]:
    """While it is written. Raises ConfigurationError where it cannot be: the option says where it goes."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror or error}", hint=f"Say another place with {option}"
        ) from error
