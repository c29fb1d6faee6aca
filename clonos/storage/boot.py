"""Whether this host has been started again since a store was opened, so that what was not synced may be gone.

What was under way to the disk when power was lost is gone in any order: later pages may be there, and earlier ones read
as zeros. A process that opens a store for the first time since the host was started must therefore look for holes
(`clonos.storage.write_ahead`); a note in its directory saves later ones the time. The note need not be synced: without
it the store is looked through again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

NOTE: Final = "BOOT"
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Another one each time this host is started. Empty where it cannot be told: that is never the same."""
    try:
        return Path(_BOOT_ID).read_text().strip()
    except OSError:
        return ""


def note_boot(directory: str) -> None:
    """What is in the directory was written, or looked through, since the host was started."""
    try:
        (Path(directory) / NOTE).write_text(boot_id())
    except OSError:
        return  # the process that opens the store next looks again


def is_of_this_boot(directory: str) -> bool:
    """Whether the host is known to have gone on since `note_boot`."""
    now = boot_id()
    try:
        return bool(now) and (Path(directory) / NOTE).read_bytes() == now.encode()
    except OSError:
        return False
