"""The readable part of a damaged causal log, put in its place.

A damaged store is not written on: what is appended behind damage could not be told from what is damaged. But what can
still be read of it counts, above all the determinants of effects that were made to survive the host. So a new store
gets that, and a note of what could not be read; the damaged one is set aside, for people. Dying in the middle of this
leaves either the old store or the new one (`recovered_name`), never none.

Whether the instance has acted on the outside is kept in a file of its own beside the store, made before the first
effect: damage to a store whose owner never acted can be less grave (`clonos.protocol.recovery.causal.holding.Damage`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from clonos.errors import LogCorrupt
from clonos.protocol.ids import LOG_BEGIN
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.storage.disk_errors import unavailable
from clonos.storage.log_store import LogReader, LogStore

NEW: Final = ".new"
_ACTS: Final = ".acts"


def being_replaced(path: str) -> bool:
    """Whether there is no store at the moment because its replacement is not in its place yet."""
    return not os.path.isdir(path) and os.path.isdir(path + NEW)


def places(logs: Path) -> list[Path]:
    """Where the stores of instances are below a folder of logs, or will be once their replacement is finished."""
    found = {path.with_name(path.name.removesuffix(NEW)) for path in logs.glob("*/*") if path.is_dir()}
    return sorted(path for path in found if path.name.isdecimal())


def finish(path: str) -> None:
    """Finish or drop a replacement that a process died over."""
    if being_replaced(path):
        os.rename(path + NEW, path)
        _sync(os.path.dirname(path))
    else:
        shutil.rmtree(path + NEW, ignore_errors=True)


def salvage(path: str, aside: str) -> str:
    """Replaces a damaged store; what could not be read of it."""
    own: list[Segment] = []
    deltas: list[bytes] = []
    incarnations = None
    lost: list[str] = []
    try:
        with LogReader(path) as reader:
            own, deltas = list(reader.own()), list(reader.deltas())
            incarnations = reader.incarnations()
            before = reader.damaged_before
            lost = [*([before] if before else []), *reader.corrupt]
    except (LogCorrupt, FileNotFoundError) as error:
        lost = [str(error)]
    said = "; ".join(dict.fromkeys(lost)) or f"the causal log in {path} cannot be written on"
    shutil.rmtree(path + NEW, ignore_errors=True)
    new = LogStore(path + NEW)
    try:
        new.note_damage(f"{said}; it was moved to {aside}")
        new.append(deltas, None)
        new.rewrite_own(LOG_BEGIN, own)
        if incarnations is not None:
            new.begin(None)
            for incarnation in incarnations:
                new.begin(incarnation)
        new.sync()
    finally:
        new.close()
    os.makedirs(os.path.dirname(aside), exist_ok=True)
    os.rename(path, aside)
    finish(path)
    return said


def note_that_it_acts(path: str) -> None:
    """Durable when this returns."""
    try:
        os.close(os.open(path + _ACTS, os.O_CREAT | os.O_WRONLY, 0o600))
        _sync(os.path.dirname(path))
    except OSError as error:
        raise unavailable(error, f"noting beside {path} that the instance acts on the outside") from error


def acts(path: str) -> bool:
    """Whether the owner of the store may have acted on the outside."""
    try:
        os.stat(path + _ACTS)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unavailable(error, f"looking whether the owner of {path} acts on the outside") from error
    return True


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
