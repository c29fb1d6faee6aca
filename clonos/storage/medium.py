"""What a kind of checkpoint storage has to offer, so that a folder can be kept there.

Names are relative, with "/" between their parts. A medium raises what its library raises: `Folder` maps it.
`FileNotFoundError` stands for a name that is not there, on every medium.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

TMP: Final = "tmp"
CHUNK: Final = 1024 * 1024


class Medium(Protocol):
    """`local`: where the folder lies in this host's own file system, if it does. `exclusive`: whether `create` refuses
    a name that is taken."""

    @property
    def local(self) -> str | None: ...

    @property
    def exclusive(self) -> bool: ...

    def __str__(self) -> str: ...

    def sizes(self, directory: str) -> dict[str, int]:
        """Files directly in `directory`, in bytes; empty where it does not exist."""
        ...

    def read(self, name: str) -> bytes:
        """A small file, whole."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """A file of any size in pieces. That there is none is said at once, not with the first piece."""
        ...

    def write(self, name: str, data: bytes, temporary: str) -> None:
        """The whole content under its name at once, durably; `temporary` is a name that may be used before."""
        ...

    def create(self, name: str, data: bytes, temporary: str) -> bool:
        """As `write`; False where the name is taken and the medium is exclusive."""
        ...

    def put(self, source_path: str, name: str, temporary: str) -> None:
        """As `write`, a local file."""
        ...

    def sync(self, name: str) -> None:
        """Make a file that another process wrote durable, where this host can do that."""
        ...

    def link(self, name: str, target_path: str) -> bool:
        """Make the same file appear at a local path; False where that is not possible."""
        ...

    def discard(self, temporary: str) -> None:
        """What a write that failed may have left under the temporary name; errors are allowed."""
        ...

    def delete(self, name: str) -> None:
        """`FileNotFoundError` is allowed, not asked for."""
        ...


def chunks_of(stream: Any) -> Iterator[bytes]:
    """Of an open binary stream, which is closed behind the last one."""
    with stream:
        while chunk := stream.read(CHUNK):
            yield chunk
