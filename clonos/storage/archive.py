"""The archive of a query in its checkpoint: segments of what instances did, their state now and then, and programs.

    <checkpoint>/clonos/archive/segments/<node>/<instance>/<epoch>-<written at>-<fence>-<number>.segment
    <checkpoint>/clonos/archive/segments/<node>/<instance>/*.segments      as `compacted_segments` has it
    <checkpoint>/clonos/archive/state/<node>/<instance>/                            as `storage.snapshots` has it
    <checkpoint>/clonos/archive/programs/<sha256>.program
    <checkpoint>/clonos/archive/cleaned/<node>-<instance>.json                      where a key was erased from states
    <checkpoint>/clonos/archive/erasure.json                   while a key is erased, as `erasure_file` has it
    <checkpoint>/clonos/archive/keys/<id>.encrypted                                 of each key that has encrypted files

Where the query has keys for it, all these files are encrypted (`encrypted_medium`).

A program is what replicas are told of an operator, with the user's function in it, pickled as Spark ships functions,
behind "CLAP" and a seal.
"""

from __future__ import annotations

from typing import Final

from clonos.errors import ConfigurationError, LogCorrupt
from clonos.protocol.archive.erasure import ErasurePlan
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.archive_keys import NO_KEYS, VARIABLE, ArchiveKeys
from clonos.storage.encrypted_medium import Encryption
from clonos.storage.erasure_file import erasure_bytes, erasure_of
from clonos.storage.folder import Folder, resolve
from clonos.storage.sealed import sealed, unsealed
from clonos.storage.segment_codec import unsealed_file
from clonos.storage.segment_files import SegmentFiles
from clonos.storage.snapshots import SnapshotStore
from clonos.values.sealed_value import seal

FOLDER: Final = "clonos/archive"
PROGRAM_MAGIC: Final = b"CLAP"
_SUFFIX: Final = ".program"
_KEYS: Final = "keys"
_ERASURE: Final = "erasure.json"


class Archive:
    """See the module. For one writer for each instance, and any readers."""

    def __init__(self, checkpoint: str, *, tag: str = "archive", keys: ArchiveKeys = NO_KEYS) -> None:
        filesystem, root = resolve(checkpoint)
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._folder = Folder(filesystem, self._root, tag=tag, encryption=Encryption(keys, LogCorrupt))
        self._checkpoint = checkpoint.rstrip("/")
        self._keys = keys
        self._segments: dict[Origin, SegmentFiles] = {}

    def states(
        self, origin: Origin, *, fence: Fence = LOWEST_FENCE, pending: str | None = None
    ) -> SnapshotStore:
        """The archived states of an instance; to look at, unless there is a fence."""
        root = f"{self._checkpoint}/{FOLDER}/state/{origin.node}/{origin.instance}"
        return SnapshotStore(root, fence=fence, pending=pending, keys=self._keys)

    # keys

    def begin_writing(self) -> None:
        """Before a query leaves anything. Raises ConfigurationError where it would be readable beside what has been
        encrypted."""
        if (key := self._keys.writing) is None:
            if used := self._keys_used():
                raise ConfigurationError(
                    f"the archive in {self._root} is encrypted with the key {used[0]}, and the query has no key for it",
                    hint="Set spark.clonos.archive.keyFile, or, to go on with another archive, which is not encrypted, "
                    f"move {self._root} away",
                )
        elif key.id.hex() not in self._keys_used():
            self._folder.write(f"{_KEYS}/{key.id.hex()}", b"")

    def check_keys(self) -> None:
        """Raises ConfigurationError where what is in the archive is encrypted, and no key for it is given here."""
        used = self._keys_used()
        if used and not any(self._keys.find(bytes.fromhex(key_id)) for key_id in used):
            raise ConfigurationError(
                f"the archive in {self._root} is encrypted with a key that is not given here ({' or '.join(used)})",
                hint=f"Name the file with the key: {VARIABLE}=/path/of/the/file clonos ...; in a job, set "
                "spark.clonos.archive.keyFile",
            )

    def _keys_used(self) -> list[str]:
        return sorted(self._folder.sizes(_KEYS))

    # segments

    def segments(self, origin: Origin) -> SegmentFiles:
        """Those of an instance."""
        return self._segments.setdefault(origin, SegmentFiles(self._folder, _place(origin)))

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

    def cleaned_upto(self, origin: Origin) -> list[Epoch]:
        """Up to which epochs states of an instance may lack a key that was erased (`protocol.archive.erasure`). Raises
        CheckpointMismatch."""
        path = _cleaned(origin)
        try:
            raw = self._folder.read(path)
        except FileNotFoundError:
            return []
        return [Epoch(each) for each in unsealed(raw, self._folder.path(path))["upto"]]

    def note_cleaned(self, origin: Origin, upto: Epoch) -> None:
        """Before a key is taken out of a state."""
        known = self.cleaned_upto(origin)
        if upto not in known:
            self._folder.write(_cleaned(origin), sealed({"upto": sorted([*known, upto])}))

    def end_erasure(self) -> None:
        self._folder.delete(_ERASURE)

    # programs

    def has_program(self, digest: str) -> bool:
        return f"{digest}{_SUFFIX}" in self._folder.stored_alike("programs")

    def write_program(self, digest: str, raw: bytes) -> None:
        self._folder.write(f"programs/{digest}{_SUFFIX}", PROGRAM_MAGIC + seal(raw, PROGRAM_MAGIC))

    def program(self, digest: str) -> bytes | None:
        """None where it is not there. Raises LogCorrupt."""
        path = f"programs/{digest}{_SUFFIX}"
        try:
            raw = self._folder.read(path)
        except FileNotFoundError:
            return None
        return unsealed_file(raw, PROGRAM_MAGIC, self._folder.path(path))


def _cleaned(origin: Origin) -> str:
    return f"cleaned/{origin.node}-{origin.instance}.json"


def _place(origin: Origin) -> str:
    return f"segments/{origin.node}/{origin.instance}"
