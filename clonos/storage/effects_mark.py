"""That an instance of the query has acted on the outside (`ctx.effect`), in its checkpoint.

    <checkpoint>/clonos/effects    JSON: format version, checksum, `effects`: true

It is written before the first effect of a process, so that it outlives every host.
"""

from __future__ import annotations

from typing import Final

from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed

_NAME: Final = "effects"


class EffectsMark:
    """The mark of one checkpoint, as one process sees it."""

    def __init__(self, checkpoint: str, *, tag: str) -> None:
        filesystem, root = resolve(checkpoint)
        self._folder = Folder(filesystem, f"{root}/clonos", tag=tag)
        self._left = False

    @property
    def is_there(self) -> bool:
        """Raises StorageUnavailable. One that is damaged says as much as one that is whole."""
        if not self._left:
            try:
                self._folder.read(_NAME)
            except FileNotFoundError:
                return False
            self._left = True
        return True

    def leave(self) -> None:
        """Durably. Raises StorageUnavailable."""
        if not self.is_there:
            self._folder.write(_NAME, sealed({"effects": True}))
            self._left = True
