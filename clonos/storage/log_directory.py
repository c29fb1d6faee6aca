"""Whose causal logs a directory on this host holds: those of one checkpoint.

    <data>/checkpoint     JSON: format version, checksum, which checkpoint, where this directory is, and was before

A query's id goes with its checkpoint. So a copy of a checkpoint that is gone on with beside the original would find the
original's logs under that id, and each would forget what the other one needs. A checkpoint that was moved is no copy,
nor is a directory that was copied with it.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from clonos.errors import CheckpointMismatch, ClonosError
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

OWNER: Final = "checkpoint"
_QUERY: Final = "clonos/query.json"


def same_directory(one: str, other: str) -> bool:
    """Whether two paths lead to one directory of this host, which need not be there."""
    return os.path.realpath(one) == os.path.realpath(other)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Of a directory: the name and the location of its checkpoint, its own path when that was written, and that of the
    directory that it was moved or copied from."""

    checkpoint: str
    location: str
    data: str
    former: str = ""


def claim_log_directory(data: Path, checkpoint: str, query: str) -> None:
    """`data` holds the logs of the query with this checkpoint from now on. Raises CheckpointMismatch where another
    checkpoint of the query is still there, of which it holds them; StorageUnavailable."""
    here = _Checkpoint(checkpoint)
    said = _read(data)
    mark = _Mark(here.name, checkpoint, os.path.realpath(data), said.former if said is not None else "")
    if said is not None and said.data != mark.data:
        mark = replace(mark, former=said.data)
    elif said is not None and said.checkpoint != mark.checkpoint:
        _check_is_gone(_Checkpoint(said.location), here, data, query)
    if said != mark:
        _folder(data).write(OWNER, sealed(asdict(mark)))


def is_copied_for(data: str, former: str, checkpoint: str) -> bool:
    """Whether `data` was made from `former`, and that holds the logs of another checkpoint than this one."""
    mine, other = _read(Path(data)), _read(Path(former))
    made_from_it = mine is not None and os.path.realpath(former) in (mine.data, mine.former)
    return made_from_it and other is not None and other.checkpoint != _Checkpoint(checkpoint).name


def _folder(data: Path) -> Folder:
    return Folder(*resolve(str(data)), tag=f"owner-{os.getpid()}")


def _read(data: Path) -> _Mark | None:
    folder = _folder(data)
    try:
        said = unsealed(folder.read(OWNER), folder.path(OWNER), f"Remove {folder.path(OWNER)}")
    except FileNotFoundError:
        return None
    return _Mark(said["checkpoint"], said["location"], said["data"], said["former"])


def _check_is_gone(other: _Checkpoint, here: _Checkpoint, data: Path, query: str) -> None:
    try:
        if not other.holds(query) or other.is_same_file(here):
            return
        why = "which is still there"
    except ClonosError as error:
        why = f"of which nobody can see now whether it is still there ({error.message})"
    raise CheckpointMismatch(
        f"{data} holds the causal logs of query {query} with the checkpoint {other.location}, {why}; "
        f"{here.location} is a copy of it, or it is a copy of this one",
        hint=f"Each copy needs logs of its own: while neither runs, copy {data} to another directory, as its folder "
        f"{data.name}, and give that one as spark.clonos.data (--data of a service). If the other checkpoint is not "
        f"used any more, remove {data / OWNER}",
    )


class _Checkpoint:
    """A checkpoint of the query, somewhere."""

    def __init__(self, location: str) -> None:
        self.location = location
        filesystem, root = resolve(location)
        self._folder = Folder(filesystem, root, tag=f"owner-{os.getpid()}")

    @property
    def name(self) -> str:
        """The same for every way to write the location."""
        local = self._folder.local
        return str(self._folder) if local is None else os.path.realpath(local)

    def holds(self, query: str) -> bool:
        try:
            return query.encode() in self._folder.read(_QUERY)
        except FileNotFoundError:
            return False

    def is_same_file(self, other: _Checkpoint) -> bool:
        """Under two names, as where it is mounted twice."""
        one, two = self._folder.local, other._folder.local
        if one is None or two is None:
            return False
        try:
            return os.path.samefile(os.path.join(one, _QUERY), os.path.join(two, _QUERY))
        except OSError:
            return False
