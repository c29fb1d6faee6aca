"""The archive of a query in its checkpoint: segments of what instances did, their state now and then, and programs.

    <checkpoint>/clonos/archive/segments/<node>/<instance>/<epoch>-<written at>-<fence>-<number>.segment
    <checkpoint>/clonos/archive/segments/<node>/<instance>/*.segments      as `compacted_segments` has it
    <checkpoint>/clonos/archive/state/<node>/<instance>/                            as `storage.snapshots` has it
    <checkpoint>/clonos/archive/programs/<sha256>.program
    <checkpoint>/clonos/archive/cleaned/<node>-<instance>.json                      as `cleaned_notes` has it
    <checkpoint>/clonos/archive/erasure.json                   while a key is erased, as `erasure_file` has it
    <checkpoint>/clonos/archive/keys/<id>.encrypted                                 of each key that was taken into use
    <checkpoint>/clonos/archive/tmp/                                                what is being written

Where the query has keys for it, all these files but those of `cleaned` are encrypted (`encrypted_medium`). A start of
the query takes the first of its keys into use; whatever else writes there, a replica or a command, writes as the
archive is by then: plain, or with a key that has been taken into use.

What a process was writing when it was killed is in `tmp`, under a name that begins with the instance and the fence of
the process, and goes when the instance has another process, the query is started, or a key is forgotten.

A program is what replicas are told of an operator, with the user's function in it, pickled as Spark ships functions,
behind "CLAP" and a seal.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from clonos.errors import ConfigurationError, LogCorrupt, SnapshotCorrupt
from clonos.protocol.archive.erasure import ErasurePlan
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin
from clonos.protocol.line.snapshot_name import read_fence
from clonos.storage.archive_keys import KEY_HINT, NO_KEYS, ArchiveKey, ArchiveKeys
from clonos.storage.cleaned_notes import CleanedNotes
from clonos.storage.encrypted_medium import Encryption
from clonos.storage.erasure_file import erasure_bytes, erasure_of
from clonos.storage.folder import TMP, Folder, resolve
from clonos.storage.segment_codec import unsealed_file
from clonos.storage.segment_files import SegmentFiles
from clonos.storage.snapshots import SnapshotStore
from clonos.values.sealed_value import seal

FOLDER: Final = "clonos/archive"
PROGRAM_MAGIC: Final = b"CLAP"
_SUFFIX: Final = ".program"
_KEYS: Final = "keys"
_PROGRAMS: Final = "programs"
_ERASURE: Final = "erasure.json"
_TAG: Final = "archive"  # of what is written, but of a process that has an instance
_TMP_NAME: Final = re.compile(r"(\d+)-(\d+)-([0-9a-f]+)-\d+")
# Else it is a process's id, as earlier versions have it
_FENCE: Final = re.compile(r"[0-9a-f]{16}|[0-9a-f]{32}")


class Archive:
    """See the module. For one writer for each instance, and any readers. `query` is its id: of another one's files,
    what is encrypted does not open."""

    def __init__(self, checkpoint: str, *, keys: ArchiveKeys = NO_KEYS, query: str = "") -> None:
        filesystem, root = resolve(checkpoint)
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._writing: tuple[ArchiveKey | None] | None = None  # known when something is written
        self._encryption = Encryption(keys, LogCorrupt, query=query, writes_with=self._writes_with)
        self._folder = Folder(filesystem, self._root, tag=_TAG, encryption=self._encryption)
        self.cleaned = CleanedNotes(self._folder, Folder(filesystem, self._root, tag=f"{_TAG}-cleaned"))
        self._checkpoint = checkpoint.rstrip("/")
        self._keys = keys
        self._segments: dict[Origin, SegmentFiles] = {}

    def states(
        self, origin: Origin, *, fence: Fence = LOWEST_FENCE, pending: str | None = None
    ) -> SnapshotStore:
        """The archived states of an instance; to look at, unless there is a fence."""
        folder = _state(origin)
        encryption = replace(self._encryption, corrupt=SnapshotCorrupt, folder=folder)
        root = f"{self._checkpoint}/{FOLDER}/{folder}"
        return SnapshotStore(root, fence=fence, pending=pending, encryption=encryption)

    # what writers have left

    def begin_writing_of(self, origin: Origin, fence: Fence) -> None:
        """Before a process that has an instance writes: what those before it were writing goes."""
        self._folder.tag = f"{origin.node}-{origin.instance}-{Fence(fence).text}"
        for name in self._folder.sizes(TMP):
            found = _TMP_NAME.fullmatch(name)
            if found is None or (int(found[1]), int(found[2])) != tuple(origin):
                continue
            if (text := _FENCE.fullmatch(found[3])) is None or read_fence(text[0])[0] < fence:
                self._folder.delete(f"{TMP}/{name}")

    def sweep(self, origins: Iterable[Origin], fence: Fence) -> None:
        """While no process writes, by a driver of this fence: what any have left that were killed, of the states of
        these instances, too. Files of theirs are stored before the state is there that they are of."""
        self._folder.sweep()
        for origin in origins:
            Folder(*resolve(f"{self._checkpoint}/{FOLDER}/{_state(origin)}"), tag=_TAG).sweep()
            if self._folder.sizes(f"{_state(origin)}/files"):
                self.states(origin, fence=fence).drop([])

    # keys

    def begin_writing(self) -> None:
        """Before a query leaves anything, when no other start of it does any more: its first key is taken into use.
        Raises ConfigurationError where what it leaves would be readable beside what has been encrypted."""
        if (key := self._keys.writing) is None:
            if used := self._keys_used():
                raise ConfigurationError(
                    f"the archive in {self._root} is encrypted with the key {used[0]}, and the query has no key for it",
                    hint="Set spark.clonos.archive.keyFile, or, to go on with another archive, which is not encrypted, "
                    f"move {self._root} away",
                )
        else:
            self._writing = (key,)
            if key.id.hex() not in self._keys_used():
                self._folder.write(f"{_KEYS}/{key.id.hex()}", b"")
            self._bring_over()
        self._folder.sweep()
        self.cleaned.decrypt()

    def _bring_over(self) -> None:
        """What is never dropped is encrypted with the key that is in use now, so that an older one may go some day."""
        done = self._folder.stored_alike(_PROGRAMS)
        for name in self._folder.sizes(_PROGRAMS):
            if name not in done:
                with suppress(LogCorrupt):  # with a key that is not given any more
                    self._folder.write(f"{_PROGRAMS}/{name}", self._folder.read(f"{_PROGRAMS}/{name}"))

    def _writes_with(self) -> ArchiveKey | None:
        """The first key that is given of those in use; None where none is, so that nothing is encrypted. Raises
        ConfigurationError."""
        if self._writing is None:
            used = self._keys_used()
            key = next((key for key in self._keys.all if key.id.hex() in used), None)
            if used and key is None:
                raise self._is_not_given(used)
            self._writing = (key,)
        return self._writing[0]

    def check_keys(self) -> None:
        """Raises ConfigurationError where what is in the archive is encrypted, and no key for it is given here."""
        used = self._keys_used()
        if used and not any(key.id.hex() in used for key in self._keys.all):
            raise self._is_not_given(used)

    @property
    def keys_not_given(self) -> list[str]:
        """The ids of keys that have been asked for so far, by what was read, and are not given here."""
        return sorted(each.hex() for each in self._encryption.not_given)

    def _is_not_given(self, used: list[str]) -> ConfigurationError:
        return ConfigurationError(
            f"the archive in {self._root} is encrypted with a key that is not given here ({' or '.join(used)})",
            hint=KEY_HINT,
        )

    def _keys_used(self) -> list[str]:
        return sorted(self._folder.sizes(_KEYS))

    # segments

    def segments(self, origin: Origin) -> SegmentFiles:
        """Those of an instance."""
        return self._segments.setdefault(origin, SegmentFiles(self._folder, _place(origin), origin))

    # what is being erased

    def write_erasure(self, plan: ErasurePlan) -> None:
        """What is about to be erased, before anything is: whatever ends the process, the next one goes on."""
        self._folder.write(_ERASURE, erasure_bytes(plan))

    def erasure(self) -> ErasurePlan | None:
        """What an erasure that was begun had to do; None where none was. Raises CheckpointMismatch."""
        try:
            raw = self._folder.read(_ERASURE)
        except FileNotFoundError:
            return None
        return erasure_of(raw, self._folder.path(_ERASURE))

    def end_erasure(self) -> None:
        self._folder.delete(_ERASURE)

    # programs

    @property
    def is_begun(self) -> bool:
        """Whether an operator has ever left anything."""
        return bool(self._folder.sizes(_PROGRAMS))

    def has_program(self, digest: str) -> bool:
        return f"{digest}{_SUFFIX}" in self._folder.stored_alike(_PROGRAMS)

    def write_program(self, digest: str, raw: bytes) -> None:
        self._folder.write(f"{_PROGRAMS}/{digest}{_SUFFIX}", PROGRAM_MAGIC + seal(raw, PROGRAM_MAGIC))

    def program(self, digest: str) -> bytes | None:
        """None where it is not there. Raises LogCorrupt."""
        path = f"{_PROGRAMS}/{digest}{_SUFFIX}"
        try:
            raw = self._folder.read(path)
        except FileNotFoundError:
            return None
        found = unsealed_file(raw, PROGRAM_MAGIC, self._folder.path(path))
        if hashlib.sha256(found).hexdigest() != digest:
            raise LogCorrupt(f"{self._folder.path(path)} has another program")
        return found


def _state(origin: Origin) -> str:
    return f"state/{origin.node}/{origin.instance}"


def _place(origin: Origin) -> str:
    return f"segments/{origin.node}/{origin.instance}"
