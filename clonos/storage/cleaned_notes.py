"""Of the states of which instances an earlier version has erased a key, as files in the folder of an archive:

    cleaned/<node>-<instance>.json

A sealed file (`sealed`) whose body has `upto`, the epochs of `protocol.archive.erasure.noted_bound`. There is nothing
else in it but `of`, its name, so it is never encrypted, and a key that is lost takes nothing with it. Still earlier
versions encrypted it, and did not say `of`.

Now each state says itself up to where it serves, so that it cannot be had without that, and no order of writing a note
and a state matters. One that is there counts as well, and is written anew only where it cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from clonos.errors import CheckpointMismatch, LogCorrupt
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.encrypted_medium import SUFFIX
from clonos.storage.folder import Folder
from clonos.storage.sealed import sealed, unsealed

_DIRECTORY: Final = "cleaned"
HINT: Final = (
    "It says from which states a key was erased; while it cannot be read, nothing is repeated from one. Put it "
    "back from a copy of the checkpoint, or name the file with its key if it is encrypted; else `clonos archive forget "
    "--erase-unknown`, with any key of the operator, erases what needs it, and writes it anew. The query itself does "
    "not need it"
)


class CleanedNotes:
    """See the module. `plain` is the same folder as the archive's, `folder`, but that nothing in it is decrypted."""

    def __init__(self, folder: Folder, plain: Folder) -> None:
        self._folder = folder
        self._plain = plain

    def upto(self, origin: Origin) -> list[Epoch]:
        """Empty where no key was erased. Raises LogCorrupt or CheckpointMismatch where that cannot be read."""
        return self._read(_path(origin))

    def write_anew_if_unreadable(self, origin: Origin, upto: Epoch, states: Iterable[Epoch]) -> None:
        """So that of the states that are there, at the ends of these epochs, none serves any epoch behind itself, and
        none of up to an epoch serves any behind that."""
        try:
            self.upto(origin)
        except (LogCorrupt, CheckpointMismatch):
            self._write(_path(origin), sorted({upto, *states}))

    def decrypt(self) -> None:
        """Those that an earlier version has encrypted, as far as their keys are given."""
        for name in self._plain.sizes(_DIRECTORY):
            if name.endswith(SUFFIX):
                path = f"{_DIRECTORY}/{name.removesuffix(SUFFIX)}"
                with suppress(LogCorrupt, CheckpointMismatch):
                    self._write(path, self._read(path))

    def _read(self, path: str) -> list[Epoch]:
        """One that is not encrypted was written later than one that is."""
        for folder in (self._plain, self._folder):
            with suppress(FileNotFoundError):
                said = unsealed(folder.read(path), folder.path(path), HINT)
                if said.get("of", _of(path)) != _of(path):
                    raise LogCorrupt(f"{folder.path(path)} is of another instance: {said['of']}")
                return [Epoch(each) for each in said["upto"]]
        return []

    def _write(self, path: str, upto: list[Epoch]) -> None:
        self._plain.write(path, sealed({"upto": upto, "of": _of(path)}))
        self._plain.delete(path + SUFFIX)


def _of(path: str) -> str:
    return path.removeprefix(f"{_DIRECTORY}/").removesuffix(".json")


def _path(origin: Origin) -> str:
    return f"{_DIRECTORY}/{origin.node}-{origin.instance}.json"
