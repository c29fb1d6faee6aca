"""Versions of operators that the library makes of parameters: joins and windows.

What was begun with other parameters can be repeated with those alone, so they are part of the version. The user gives
the version without them.
"""

from __future__ import annotations

import re
from typing import Final

_WITH_KIND: Final = re.compile(r"(.*) \([^()]* microseconds\)", re.DOTALL)


def version_of_kind(said: str, kind: str) -> str:
    """`kind` ends with a span in microseconds."""
    return f"{said} ({kind} microseconds)"


def said_by_user(version: str) -> str:
    """The version as the user gives it."""
    found = _WITH_KIND.fullmatch(version)
    return found[1] if found else version
