"""Callers of the intercepted functions that are no user functions.

The standard library asks for the time to know how long it has waited. What it asks for must not be recorded: how often
it asks differs from run to run, and a wait by a recorded clock, in a replay, would not end with what it waits for. And
what the runtime asks for, it records itself.
"""

from __future__ import annotations

from types import FrameType
from typing import Final

REAL: Final = frozenset(
    {
        "asyncio",
        "clonos",
        "clonos_standby",
        "concurrent",
        "grpc",
        "multiprocessing",
        "queue",
        "sched",
        "select",
        "selectors",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
    }
)
"""Packages whose own code gets the real ones. What they call, a task of an event loop for one, may be the user's again.
Names of temporary files are among it: their generator is made once per process."""

_users: dict[object, bool] = {}


def asked_by_user(frame: FrameType) -> bool:
    """Whether a call from this frame is the user function's own."""
    module = frame.f_globals.get("__name__")
    found = _users.get(module)
    if found is None:
        found = _users[module] = str(module).partition(".")[0] not in REAL
    return found
