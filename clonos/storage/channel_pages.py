"""The numbers of a checkpoint's source channels on pages (`clonos.protocol.channel_numbering` has the rules).

<checkpoint>/clonos/channels/<start>-<page>    JSON with version and checksum: [[node, number, name], ...]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from clonos.errors import CheckpointMismatch
from clonos.protocol.channel_numbering import Page, kept
from clonos.protocol.fence import Generation
from clonos.protocol.ids import NodeId
from clonos.protocol.source_channels import ChannelNumbers, Numbered
from clonos.storage.folder import Folder
from clonos.storage.sealed import sealed, unsealed

_FOLDER: Final = "channels"
_NAME: Final = re.compile(r"(\d{20})-(\d{20})")


class ChannelPages:
    """Those of one checkpoint, as one driver uses them."""

    def __init__(self, folder: Folder, check_leads: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._check_leads = check_leads

    def pages(self) -> list[Page]:
        matches = map(_NAME.fullmatch, self._folder.sizes(_FOLDER))
        return [Page(Generation(int(match[1])), int(match[2])) for match in matches if match is not None]

    def read(self, page: Page) -> list[Numbered]:
        """Raises CheckpointMismatch where it is damaged."""
        path = _path(page)
        try:
            body = unsealed(self._folder.read(path), self._folder.path(path))
        except FileNotFoundError as error:  # the driver that tidied it up leads now
            self._check_leads()
            raise CheckpointMismatch(f"{self._folder.path(path)} is gone since it was listed") from error
        try:
            return [
                Numbered(NodeId(int(node)), int(number), str(name)) for node, number, name in body["entries"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointMismatch(f"{self._folder.path(path)} cannot be read: {error!r}") from error

    def write(self, page: Page, entries: Collection[Numbered]) -> None:
        self._folder.write(_path(page), sealed({"entries": [list(entry) for entry in entries]}))

    def forget(self, page: Page) -> None:
        self._folder.delete(_path(page))

    def check_leads(self) -> None:
        self._check_leads()


def channel_numbers(folder: Folder) -> ChannelNumbers:
    """What is kept in a checkpoint, for a command that only looks. Raises CheckpointMismatch."""
    shelf = ChannelPages(folder)
    return kept(shelf, shelf.pages())


def _path(page: Page) -> str:
    return f"{_FOLDER}/{page.start:020d}-{page.number:020d}"
