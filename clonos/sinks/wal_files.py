"""Files that several processes share: whole writes, durable renames, a lock, a fence.

The *fence file* says which fence stands; the *lock* makes reading it and acting on it one step. A writer takes the lock
for each bundle and lets go afterwards, so its successor need not wait for it to end: the successor takes the lock,
raises the fence, and the predecessor's next bundle is refused. (A process that is stopped while it holds the lock keeps
its successor waiting until it is killed; the kernel then releases the lock.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from clonos.errors import LogCorrupt, ProtocolError, QueryDefinitionError, SinkError, SinkUnavailable
from clonos.protocol.fence import Fence
from clonos.protocol.roles.sink_fence import NO_WRITER, Holder
from clonos.storage.durable_files import make_directory, replace_file

_NO_WRITER = "-"


def local_path(place: str | os.PathLike[str], what: str) -> str:
    """An absolute local path for a path or file: URI. Anything else is refused: it has no locks and no appends."""
    text = os.fspath(place)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        text = unquote(parts.path)
    elif len(parts.scheme) > 1:
        raise QueryDefinitionError(f"{what} must be a local path, not {text!r}")
    if not text:
        raise QueryDefinitionError(f"{what} is empty")
    return os.path.abspath(text)


def file_name(query: str) -> str:
    """The query's id as a file name: itself where it can be one."""
    return quote(query, safe="").replace(".", "%2E") if query.startswith(".") else quote(query, safe="")


def write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """All of it, at the offset; on an error the file may hold a part."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def make_directories(path: Path, *, durable: bool) -> None:
    """The directory and those above it that are missing."""
    if durable:
        make_directory(str(path))
    else:
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Errors of the disk, in the sink's terms: those that may go away by themselves, and that of a file that may not
    grow any more."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise SinkError(
                f"cannot write {what}: a file has the size at which its file system, or the limit of the process, ends",
                hint="Raise the limit (ulimit -f), or put a file system with larger files under the sink's folder, and "
                "start the query again: what is in the log is written then",
            ) from None
        why = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
        raise SinkUnavailable(f"cannot write {what}: {why}") from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock, or raise SinkUnavailable where another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SinkUnavailable(f"another process holds {path}") from None
        yield
    finally:
        os.close(descriptor)


def read_fence(path: Path) -> Holder:
    """The fence that stands, and who took it; 0 where none was taken yet.

    The file is one line, `clonos-fence 2 <fence> <owner> <CRC-32 of what stands before>`, with 32 hexadecimal digits
    for the fence and `-` for no owner. When fences had 64 bits it was `clonos-fence 1 <decimal> <CRC-32>`.
    """
    try:
        text = path.read_text("ascii", "replace")
    except FileNotFoundError:
        return Holder()
    word, _, checksum = text.rstrip("\n").rpartition(" ")
    if checksum == f"{zlib.crc32(word.encode()):08x}":
        match word.split(" "):
            case ["clonos-fence", "1", number] if number.isdigit():
                return Holder(Fence.widened(int(number)))
            case ["clonos-fence", "2", number, owner]:
                with contextlib.suppress(ProtocolError):
                    return Holder(Fence.parse(number), NO_WRITER if owner == _NO_WRITER else owner)
    raise LogCorrupt(f"the fence file {path} is damaged", hint="Restore it before the query runs again")


def write_fence(path: Path, holder: Holder, *, durable: bool) -> None:
    word = f"clonos-fence 2 {Fence(holder.fence).text} {holder.owner or _NO_WRITER}"
    replace_file(path, f"{word} {zlib.crc32(word.encode()):08x}\n".encode(), durable=durable)
