"""What Spark has planned of an epoch: where it ends in the sources (`<checkpoint>/offsets/<epoch>`).

In micro-batch Spark writes it before the epoch begins, and renames it into place, but syncs neither the file nor its
directory. Storage that is no file system of this host is taken to be durable as it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from clonos.json_text import parsed_json
from clonos.protocol.ids import Epoch
from clonos.storage.folder import Folder, resolve

OFFSETS: Final = "offsets"
_HEAD: Final = 2  # lines: the version of the format, and the batch's metadata
_FORMAT: Final = "v1"
_JSON_BEGINS: Final = ("{", "[", '"')
_SHOWN: Final = 60


def keep_plan(checkpoint: str, epoch: Epoch) -> None:
    """A power failure of this host does not take it any more. Raises StorageUnavailable."""
    filesystem, root = resolve(checkpoint)
    with suppress(FileNotFoundError):  # another writer of checkpoints may keep it elsewhere
        Folder(filesystem, root, tag="looking").sync(f"{OFFSETS}/{epoch}")


def damage_of(said: bytes) -> str | None:
    """What is wrong with such a file, as far as that can be seen. A source may write its offset in any form; a line
    that begins as JSON, as nearly all do, and does not end as JSON is cut off."""
    version, *lines = said.decode(errors="replace").split("\n")
    for number, line in enumerate(lines, 2):
        if line.startswith(_JSON_BEGINS) and not _is_json(line):
            return f"line {number} is cut off, or is not what was written: {line[:_SHOWN]}"
    if _FORMAT.startswith(version) and 1 + len(lines) <= _HEAD:
        return f"it ends after line {1 + len(lines)}, before the offsets"
    return None


def _is_json(line: str) -> bool:
    try:
        parsed_json(line)
    except ValueError:
        return False
    return True
