"""What the checks of all ports have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from clonos.errors import ClonosError


def check_name(check: Callable[[Any], None]) -> str:
    """For the ids of parametrised tests."""
    return check.__name__


@contextmanager
def refused(kind: type[ClonosError], what: str) -> Iterator[None]:
    """What is done inside has to raise an error of this kind."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{what} was not refused with {kind.__name__}")


def same(what: str, found: Any, due: Any) -> None:
    """Compare what was found with what has to be there."""
    if found != due:
        raise AssertionError(f"{what}: found {found!r}, due is {due!r}")
