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
from clonos.protocol.fence import NO_GENERATION, Generation
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

OWNER: Final = "checkpoint"
_QUERY: Final = "clonos/query.json"


def same_directory(one: str, other: str) -> bool:
    """Whether two paths lead to one directory of this host, which need not be there."""
    return os.path.realpath(one) == os.path.realpath(other)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Of a directory: the name and the location of its checkpoint, its own path when that was written, that of the
    directory that it was moved or copied from, and the first start of the last driver that has logged there."""

    checkpoint: str
    location: str
    data: str
    former: str = ""
    start: Generation = NO_GENERATION

    def is_there(self, query: str, here: _Checkpoint) -> bool:
        """Whether the checkpoint is still where it was, and not the one `here` under another name. Raises
        ClonosError where this host cannot see that."""
        is_local = os.path.isabs(self.checkpoint)  # else the name says only which it is
        other = _Checkpoint(self.checkpoint if is_local else self.location)
        return other.holds(query) and not other.is_same_directory(here)


def claim_log_directory(data: Path, checkpoint: str, query: str) -> None:
    """`data` holds the logs of the query with this checkpoint from now on. Raises CheckpointMismatch where another
    checkpoint of the query is still there, of which it holds them; StorageUnavailable."""
    here = _Checkpoint(checkpoint)
    said = _read(data)
    mark = _Mark(here.name, checkpoint, os.path.realpath(data))
    if said is not None:
        mark = replace(mark, former=said.former, start=said.start)
        is_copy = said.data != mark.data and os.path.exists(said.data)
        if said.data != mark.data:
            mark = replace(mark, former=said.data)
        if said.checkpoint != mark.checkpoint and not is_copy:
            _check_is_gone(said, here, data, query)
    if said != mark:
        _folder(data).write(OWNER, sealed(asdict(mark)))


def note_start(data: Path, start: Generation) -> None:
    """From this start on instances may log here. Where the directory is claimed: one inside the checkpoint is not.
    Raises StorageUnavailable."""
    said = _read(data)
    if said is not None:
        _folder(data).write(OWNER, sealed(asdict(replace(said, start=start))))


def is_copied_for(data: str, former: str, checkpoint: str, query: str, last: Generation) -> bool:
    """Whether `data` was made from `former`, and that holds the logs of another checkpoint than this one, of which
    `last` is the last start. Raises CheckpointMismatch where it was made when the other one had gone on: what instances
    had done in the epoch that is open in this one may have been removed by then."""
    mine, other, here = _read(Path(data)), _read(Path(former)), _Checkpoint(checkpoint)
    if mine is None or other is None or other.checkpoint == here.name:
        return False
    if os.path.realpath(former) not in (mine.data, mine.former) or not other.is_there(query, here):
        return False
    if mine.start > last:
        raise CheckpointMismatch(
            f"{data} is a copy of {former} as that was after start {mine.start} of {other.location}; this checkpoint "
            f"was copied after start {last}, and what its open epoch has done need not be in these logs any more",
            hint="Use a copy of the directory that was made together with the checkpoint's. If there is none, copy "
            "both again, or choose spark.clonos.onGap=at_least_once to go on with possible contradictions",
        )
    return True


def _folder(data: Path) -> Folder:
    return Folder(*resolve(str(data)), tag=f"owner-{os.getpid()}")


def _read(data: Path) -> _Mark | None:
    folder = _folder(data)
    try:
        said = unsealed(folder.read(OWNER), folder.path(OWNER), f"Remove {folder.path(OWNER)}")
    except FileNotFoundError:
        return None
    start = Generation(int(said.get("start", NO_GENERATION)))
    return _Mark(said["checkpoint"], said["location"], said["data"], said["former"], start)


def _check_is_gone(other: _Mark, here: _Checkpoint, data: Path, query: str) -> None:
    try:
        if not other.is_there(query, here):
            return
        why = "which is still there"
    except ClonosError as error:
        why = f"of which this host cannot see now whether it is still there ({error.message})"
    raise CheckpointMismatch(
        f"{data} holds the causal logs of query {query} with the checkpoint {other.location}, {why}; "
        f"{here.location} is a copy of it, or it is a copy of this one",
        hint=f"Each copy needs logs of its own, as they were when it was made: if the other one has not run since, "
        f"copy {data} to another directory, as its folder {data.name}, and give that one as spark.clonos.data (--data "
        f"of a service). If the other checkpoint is not used any more, remove {data / OWNER}",
    )


class _Checkpoint:
    """A checkpoint of the query, somewhere."""

    def __init__(self, location: str) -> None:
        self.location = location
        filesystem, root = resolve(location)
        self._folder = Folder(filesystem, root, tag=f"owner-{os.getpid()}")

    @property
    def name(self) -> str:
        """The same for every way to write the location: a path, or file system, host or bucket, and path."""
        return self._folder.identity(self.location)

    def holds(self, query: str) -> bool:
        try:
            return query.encode() in self._folder.read(_QUERY)
        except FileNotFoundError:
            return False

    def is_same_directory(self, other: _Checkpoint) -> bool:
        """Under two names, as where it is mounted twice. Files in it may be one in two copies, a directory is not."""
        one, two = self._folder.local, other._folder.local
        if one is None or two is None:
            return False
        try:
            return os.path.samefile(one, two)
        except OSError:
            return False
