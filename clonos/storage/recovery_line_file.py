"""The recovery line of a start of the query, in its checkpoint.

    <checkpoint>/clonos/lines/<generation>    JSON: format version, checksum, generation, epoch, where instances begin

A start has a file of its own, so that a driver that has been overtaken and does not know it yet changes no other
start's. The driver writes it before Spark starts the query, and every replica of that start finds it. One that does not
must not take it that there is none: some would begin where others do not expect it.
"""

from __future__ import annotations

from typing import Any, Final

from clonos.errors import StorageUnavailable
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.line.recovery_line import RecoveryLine, Resume
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed

FOLDER: Final = "lines"
KEPT: Final = 4


def write_line(checkpoint: str, line: RecoveryLine) -> None:
    """Raises StorageUnavailable."""
    body: dict[str, Any] = {
        "generation": line.generation,
        "epoch": line.epoch,
        "resumes": [
            [*origin, one.name, sorted(one.awaited_input.items())] for origin, one in line.resumes.items()
        ],
        # the key that a line has had from the first version on
        "stable": [[*origin, offset] for origin, offset in line.truncation_points.items()],
    }
    if line.realtime:
        body["realtime"] = True
    if line.needs:
        body["needs"] = [[*origin, upto] for origin, upto in line.needs.items()]
    if line.programs:
        body["programs"] = sorted(line.programs.items())
    unread = [[*origin, one.unread] for origin, one in line.resumes.items() if one.unread is not None]
    if unread:
        body["unread"] = unread
    if line.bases is not None:
        body["bases"] = [[*origin, name] for origin, name in line.bases.items()]
    folder = _folder(checkpoint, f"line-{line.generation}")
    folder.write(_name(line.generation), sealed(body))
    for name in folder.sizes(FOLDER):
        if name.isdecimal() and int(name) <= line.generation - KEPT:
            folder.delete(f"{FOLDER}/{name}")


def read_line(checkpoint: str, generation: Generation) -> RecoveryLine:
    """That of a start. Raises StorageUnavailable, and CheckpointMismatch where it is damaged: the next start cannot do
    without it, for it says which snapshots count."""
    folder = _folder(checkpoint, "line")
    name = _name(generation)
    where = folder.path(name)
    try:
        body = unsealed(folder.read(name), where)
        unread = {Origin(node, at): OutputNumber(number) for node, at, number in body.get("unread", ())}
        line = RecoveryLine(
            Generation(body["generation"]),
            Epoch(body["epoch"]),
            {
                Origin(node, at): Resume(name, dict(awaited_input), unread.get(Origin(node, at)))
                for node, at, name, awaited_input in body["resumes"]
            },
            {Origin(node, at): LogOffset(offset) for node, at, offset in body["stable"]},
            {Origin(node, at): base for node, at, base in body["bases"]} if "bases" in body else None,
            realtime=bool(body.get("realtime")),
            needs={Origin(node, at): LogOffset(upto) for node, at, upto in body.get("needs", ())},
            programs={Epoch(since): digest for since, digest in body.get("programs", ())},
        )
    except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise StorageUnavailable(f"{where} cannot be read: {error!r}") from error
    if line.generation != generation:
        raise StorageUnavailable(f"{where} is of start {line.generation} of the query, not {generation}")
    return line


def newest_line(checkpoint: str) -> RecoveryLine | None:
    """Of the last start that has one: no instance has run in any later. Raises as `read_line`."""
    starts = [Generation(int(name)) for name in _folder(checkpoint, "line").sizes(FOLDER) if name.isdecimal()]
    return read_line(checkpoint, max(starts)) if starts else None


def _name(generation: Generation) -> str:
    return f"{FOLDER}/{generation:020d}"


def _folder(checkpoint: str, tag: str) -> Folder:
    filesystem, root = resolve(checkpoint)
    return Folder(filesystem, f"{root}/clonos", tag=tag)
