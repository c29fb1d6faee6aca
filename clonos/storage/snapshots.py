"""Snapshots of one instance's state in checkpoint storage.

    <root>/manifests/<epoch>-<fence>-<sequence>-<final|mid|from>.manifest    one per snapshot, written last
    <root>/files/<sha256>-<size>-<fence>                                table files, shared by snapshots
    <root>/fences/<fence>                                               that an incarnation has claimed the instance
    <root>/tmp/                                                         what is being written

*Taking one* has two halves. `begin` runs in the instance's thread and costs what is dirty, not what there is: dirty
entries are written, RocksDB hard-links its files into a directory under `pending/`. `store` may run in a thread of its
own, since it touches that directory and the checkpoint storage only: it stores the table files that no earlier
snapshot has, then the manifest. A snapshot exists when its manifest does; whatever a crash leaves without one is swept
by the next incarnation.

*Restoring one* brings every file back and checks size and content before anything opens it. Table files that lie on the
same device are hard-linked (RocksDB never writes to one again), everything else is copied.

*Fencing.* Each incarnation claims the instance under its fence before it changes anything; an incarnation that
finds a higher claim raises `Fenced`. Between that check and the write it may still be overtaken. Therefore names hold
the fence (it cannot overwrite), a higher fence wins for the same epoch (what it writes is not chosen), and it removes
only files that carry its own fence or a lower one and that no manifest names. A file of an older fence that the
successor goes on using is named by the snapshot which the successor restored, and that snapshot is forgotten only
after the successor has made another one final.

*Transactions.* Where checkpoints follow each other without a pause, most are a whole one and what has changed since. It
stands in their manifests, or, of an instance that appends, in a log of events (`event_logs`), where each is one write.

*Sharing.* A file is taken as already stored only if a manifest that this store has restored or written names it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from clonos.errors import Fenced, SnapshotCorrupt, StateError, StorageUnavailable
from clonos.protocol.fence import FENCE_BYTES, LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, epoch_before
from clonos.protocol.line import snapshot_name
from clonos.protocol.line.snapshot_name import Since, SnapshotName, read_fence
from clonos.storage.disk_errors import disk
from clonos.storage.encrypted_medium import Encryption
from clonos.storage.event_logs import EventLogs, Transaction
from clonos.storage.event_medium import NO_EVENTS, EventMedium
from clonos.storage.folder import TMP, Folder, Storage, hash_file, resolve
from clonos.storage.increment import FILE as INCREMENT
from clonos.storage.manifest import Manifest, SnapshotFile, stored_fence, stored_name

__all__ = ["Manifest", "PendingSnapshot", "SnapshotStore"]

_MANIFESTS: Final = "manifests"
_FILES: Final = "files"
_FENCES: Final = "fences"
_FENCE_NAME: Final = re.compile(r"[0-9a-f]{16}|[0-9a-f]{32}")
_TMP_NAME: Final = re.compile(r"([0-9a-f]{16}|[0-9a-f]{32})-\d+")
_MAX_FENCE: Final = (1 << 8 * FENCE_BYTES) - 1
_SHARED_SUFFIXES: Final = (".sst", ".blob")
_MAX_CONTENT_BYTES: Final = 1024 * 1024


class Checkpointed(Protocol):
    """What a snapshot is taken of."""

    def checkpoint(self, directory: str) -> None:
        """Its files, into a directory that does not exist yet."""

    def increment(self) -> bytes | None:
        """What makes a checkpoint of the files of the last one; None where its files are due."""


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot that was begun: its files are in `directory`, or are those of `base` with an `increment`. Nothing is
    in checkpoint storage yet."""

    directory: str
    name: SnapshotName
    meta: bytes
    base: Manifest | None = None
    increment: bytes = b""


def begin_whole(state: Checkpointed, name: SnapshotName, meta: bytes, directory: str) -> PendingSnapshot:
    """Fix the whole state as it is now, under a name, in a new local directory on the same device as the state: one for
    whichever store of the instance it will be stored by. Raises StateError."""
    if SnapshotName.parse(str(name)) != name:
        raise StateError(f"epoch {name.epoch} or sequence {name.sequence} of a snapshot is out of range")
    state.checkpoint(directory)
    return PendingSnapshot(directory, name, bytes(meta))


class SnapshotStore:
    """See the module.

    `root` is a path or URI, or a path inside `filesystem` where that is given. `pending` is a local directory on the
    same device as the state; what it holds is removed. One without it, with `fence` 0, is for looking only. `events`:
    where the logs of an instance are that `appends`. `encryption`: of files that are encrypted, or may be.
    """

    def __init__(
        self,
        root: str,
        *,
        fence: Fence,
        pending: str | None,
        filesystem: Storage | None = None,
        events: EventMedium = NO_EVENTS,
        appends: bool = False,
        encryption: Encryption | None = None,
    ) -> None:
        if not 0 <= fence <= _MAX_FENCE:
            raise StateError(f"a fence is a number of 128 bits, not {fence}")
        if filesystem is None:
            filesystem, root = resolve(root)
        self.fence = fence
        self._folder = Folder(filesystem, root, tag=Fence(fence).text, encryption=encryption)
        self._pending = pending
        self._pending_numbers = itertools.count()
        self._events = EventLogs(events, may_look_again=not fence)
        self._appends = appends
        if pending is not None:
            with disk(f"clearing {pending}", corrupt=SnapshotCorrupt):
                shutil.rmtree(pending, ignore_errors=True)
                os.makedirs(pending, exist_ok=True)
        # Held while checkpoint storage is changed. `_due` asks the thread that holds it to collect garbage at the end.
        self._changing = threading.Lock()
        self._due_lock = threading.Lock()
        self._due: Epoch | None = None
        self._since: Since | None = None
        self._swept = False
        self._kept_from: int | None = None
        self._whole: Manifest | None = None  # the last that this store has stored all files of
        self._manifests: dict[SnapshotName, Manifest] = {}
        # Content -> stored name, for files named by manifests of this store's own line.
        self._shared: dict[tuple[int, bytes], str] = {}
        # (inode, mtime_ns, size) of a table file -> its SHA-256, so that none is read twice.
        self._hashed: dict[tuple[int, int, int], bytes] = {}
        self.corrupt = self._events.corrupt  # what was found to be damaged, there or here

    # Taking a snapshot

    def begin(
        self, state: Checkpointed, meta: bytes, *, epoch: Epoch, sequence: int, final: bool
    ) -> PendingSnapshot:
        """Fix the state as it is now. Cheap; the instance goes on when it returns."""
        name = SnapshotName(epoch, self.fence, sequence, final)
        whole = self._whole
        may_be_part = whole is not None and not final and not self._events.is_full(whole)
        if may_be_part and (increment := state.increment()) is not None:
            return PendingSnapshot("", name, bytes(meta), whole, increment)
        self._whole = None
        if self._pending is None:
            raise StateError(f"the snapshots in {self._folder.path} are only looked at here")
        directory = os.path.join(self._pending, f"{epoch}-{sequence}-{next(self._pending_numbers)}")
        return begin_whole(state, name, meta, directory)

    def finish(self, pending: PendingSnapshot) -> Manifest:
        """`store`, and what has been stored."""
        self.store(pending)
        manifest = self._read(pending.name)
        assert manifest is not None
        return manifest

    def store(self, pending: PendingSnapshot) -> None:
        """Store what was begun; when it returns, the snapshot is durable.

        After `StorageUnavailable` the same pending snapshot can be stored again.
        """
        with self._changing:
            self._claim()
            if pending.base is not None and self._appends:  # what it supersedes goes with its log
                self._events.append(pending.base, Transaction(pending.name, pending.meta, pending.increment))
            else:
                self._store(pending)
                # The snapshot is there: what cannot be tidied up now can be tidied up later.
                with suppress(StorageUnavailable):
                    self._prune(pending.name, frees_files=pending.base is None)
        self._remove_files(pending)
        with suppress(StorageUnavailable):
            self._collect_if_due()

    def share(self, manifest: Manifest) -> None:
        """What a snapshot of this store names need not be stored again, if it is still there."""
        self._remember(manifest)

    def keep_from(self, number: int) -> None:
        """Of the snapshots inside an epoch, those from this one on are kept by number, and not only the newest."""
        self._kept_from = max(number, self._kept_from or 0)

    def abandon(self, pending: PendingSnapshot) -> None:
        """Give up a pending snapshot, and its local files."""
        self._whole = None  # a later increment may lack what this one has
        self._remove_files(pending)

    def _remove_files(self, pending: PendingSnapshot) -> None:
        if pending.base is None:
            shutil.rmtree(pending.directory, ignore_errors=True)

    def _store(self, pending: PendingSnapshot) -> None:
        manifest = Manifest(
            epoch=pending.name.epoch,
            sequence=pending.name.sequence,
            final=pending.name.final,
            fence=pending.name.fence,
            meta=pending.meta,
            files=self._store_files(pending),
        )
        self._claim()
        self._folder.write(f"{_MANIFESTS}/{pending.name}", manifest.to_bytes())
        self._remember(manifest)
        if pending.base is None:
            self._whole = manifest

    def _store_files(self, pending: PendingSnapshot) -> tuple[SnapshotFile, ...]:
        if pending.base is not None:
            content = pending.increment
            digest = hashlib.sha256(content).digest()
            return (*pending.base.files, SnapshotFile(INCREMENT, len(content), digest, "", content, None))
        present = self._folder.stored_alike(_FILES)
        with disk(f"reading {pending.directory}", corrupt=SnapshotCorrupt):
            names = sorted(os.listdir(pending.directory))
        return tuple(self._store_file(pending.directory, path, present) for path in names)

    def _store_file(self, directory: str, path: str, present: dict[str, int]) -> SnapshotFile:
        source = os.path.join(directory, path)
        with disk(f"reading {source}", corrupt=SnapshotCorrupt):
            stat = os.stat(source)
            if not path.endswith(_SHARED_SUFFIXES) and stat.st_size <= _MAX_CONTENT_BYTES:
                with open(source, "rb") as stream:
                    content = stream.read()
                size, digest = hash_file(source)
                return SnapshotFile(path, size, digest, "", content, None)
            mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            known = self._hashed.get(mark)
            if known is None:
                known = hash_file(source)[1]
                self._hashed[mark] = known
        size = stat.st_size
        stored = self._shared.get((size, known))
        if stored is None or present.get(stored) != size:
            stored = stored_name(size, known, self.fence)
            if present.get(stored) != size:
                self._folder.put(source, f"{_FILES}/{stored}")
                present[stored] = size
        return SnapshotFile(path, size, known, stored, None, self._stamp(stored))

    def _stamp(self, stored: str) -> tuple[int, int] | None:
        if self._folder.local is None:
            return None
        try:
            stat = os.stat(os.path.join(self._folder.local, _FILES, stored))
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns

    def _remember(self, manifest: Manifest) -> None:
        self._manifests[manifest.name] = manifest
        for file in manifest.files:
            if file.stored:
                self._shared[(file.size, file.sha256)] = file.stored

    # Finding and restoring one

    def latest(
        self,
        *,
        epoch: Epoch,
        final_only: bool,
        usable: Callable[[Manifest], bool] = lambda _: True,
        fence: Fence | None = None,
        since: Since | None = None,
    ) -> Manifest | None:
        """Where an instance that is to run `epoch` may start from.

        The newest usable snapshot inside `epoch` (unless `final_only`), else where this attempt began it; None where
        nothing was ever kept. A damaged snapshot inside the epoch is passed over and noted in `corrupt`; a damaged
        beginning raises, since nothing stands in for it.
        """
        if not final_only:
            for manifest in self._readable(snapshot_name.in_epoch(self._names(), epoch)):
                if usable(manifest):
                    return manifest
        return self.beginning(epoch, self.fence if fence is None else fence, since)

    def beginning(self, epoch: Epoch, fence: Fence, since: Since | None = None) -> Manifest | None:
        """Where the task attempt of `fence` began `epoch`: where it resumed inside it, or at the end of the last epoch
        before that the instance ran."""
        return self.resumed(epoch, fence) or self.final(epoch_before(epoch), since)

    def resumed(self, epoch: Epoch, fence: Fence) -> Manifest | None:
        """Where the task attempt of `fence` resumed inside `epoch`, if it did."""
        return self._first(snapshot_name.resumed(self._names(), epoch, fence))

    def named(self, text: str) -> Manifest | None:
        """The snapshot of that name, if it is still there."""
        name = SnapshotName.parse(text)
        return self._read(name) if name is not None else None

    def inside(self, epoch: Epoch) -> list[Manifest]:
        """The snapshots inside `epoch` that can be read, oldest first, of the newest task attempt alone."""
        claimed = max(self._claims(), default=LOWEST_FENCE)
        return list(self._readable(snapshot_name.of_newest_attempt(self._names(), epoch, claimed)))

    def names_of_all_attempts(self, epoch: Epoch) -> list[SnapshotName]:
        """Of the snapshots inside `epoch`, oldest first."""
        return snapshot_name.of_all_attempts(self._names(), epoch)

    def readable(self, name: SnapshotName) -> Manifest | None:
        """A snapshot, if it is still there and not damaged. It is not kept in mind."""
        try:
            return self._load(name)
        except SnapshotCorrupt:
            return None

    def meta(self, name: SnapshotName) -> bytes | None:
        """What the instance has said of itself with a snapshot that is still there and not damaged."""
        try:
            found = self._events.meta(name)
        except SnapshotCorrupt:
            return None
        if found is None and (manifest := self.readable(name)) is not None:
            found = manifest.meta
        return found

    def _readable(self, names: Iterable[SnapshotName]) -> Iterator[Manifest]:
        """Those of them that are still there; a damaged one is passed over and noted in `corrupt`."""
        for name in names:
            try:
                manifest = self._read(name)
            except SnapshotCorrupt as error:
                self.corrupt.append(error.message)
                continue
            if manifest is not None:
                yield manifest

    def final(self, epoch: Epoch, since: Since | None = None) -> Manifest | None:
        """How the instance stood at the end of `epoch`, or of the last one before that it ran, by what counts `since`
        the query was started."""
        return self._first(snapshot_name.ends(self._names(), epoch, since))

    def binding(self, epoch: Epoch, fence: Fence) -> Manifest | None:
        """How an attempt before that of `fence` has ended `epoch`, where it has to end alike."""
        return self._first(snapshot_name.binding(self._names(), epoch, fence))

    def _first(self, names: Iterable[SnapshotName]) -> Manifest | None:
        """The first that has not been forgotten since it was listed."""
        return next((found for name in names if (found := self._read(name)) is not None), None)

    def manifests(self) -> list[SnapshotName]:
        """Every snapshot there is, oldest first."""
        return sorted(self._names())

    def _names(self) -> list[SnapshotName]:
        return [*self._whole_names(), *self._events.names()]

    def _whole_names(self) -> list[SnapshotName]:
        """Of those that are in no log."""
        found = (SnapshotName.parse(text) for text in self._folder.sizes(_MANIFESTS))
        return [name for name in found if name is not None]

    def close(self) -> None:
        """Of connections; the store may be used again."""
        self._events.close()

    def _read(self, name: SnapshotName) -> Manifest | None:
        """A manifest; None if it was forgotten since it was listed."""
        known = self._manifests.get(name)
        if known is not None:
            return known
        found = self._load(name)
        if found is not None:
            self._manifests[name] = found
        return found

    def _load(self, name: SnapshotName) -> Manifest | None:
        if (logged := self._events.read(name)) is not None:
            return logged
        path = f"{_MANIFESTS}/{name}"
        try:
            data = self._folder.read(path)
        except FileNotFoundError:
            return None
        where = self._folder.path(path)
        manifest = Manifest.from_bytes(data, where)
        if manifest.name != name:
            raise SnapshotCorrupt(f"the snapshot manifest {where} says that it is {manifest.name}")
        return manifest

    def restore(self, manifest: Manifest, directory: str, *, beside: str | None = None) -> None:
        """Bring a snapshot back into a local directory that must not exist yet, whole or not at all.

        `beside` is the directory of one that this store restored before: of its table files, those that are in both
        need not be fetched again.
        """
        if self.fence:
            self.claim()
            self._events.sync(manifest.name)
        if os.path.lexists(directory):
            raise StateError(f"cannot restore into {directory}: it exists")
        partial = f"{directory}.restoring"
        with disk(f"restoring into {directory}", corrupt=SnapshotCorrupt):
            shutil.rmtree(partial, ignore_errors=True)
            os.makedirs(partial)
            try:
                for file in manifest.files:
                    self._restore_file(file, os.path.join(partial, file.path), beside)
                os.rename(partial, directory)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        self._remember(manifest)

    def _restore_file(self, file: SnapshotFile, target: str, beside: str | None) -> None:
        if file.content is not None:
            with open(target, "xb") as stream:
                stream.write(file.content)
            self._check(file, *hash_file(target))
            return
        name = f"{_FILES}/{file.stored}"
        try:
            if self._folder.link(name, target):
                if not self._unchanged(file, target):
                    self._check(file, *hash_file(target))
            elif beside is None or not self._link_beside(file, os.path.join(beside, file.path), target):
                self._check(file, *self._folder.fetch(name, target))
        except FileNotFoundError as error:
            raise SnapshotCorrupt(f"the snapshot file {self._where(file)} is missing") from error
        stat = os.stat(target)
        self._hashed[(stat.st_ino, stat.st_mtime_ns, stat.st_size)] = file.sha256

    def _link_beside(self, file: SnapshotFile, source: str, target: str) -> bool:
        try:
            stat = os.stat(source)
            if self._hashed.get((stat.st_ino, stat.st_mtime_ns, stat.st_size)) != file.sha256:
                return False
            os.link(source, target)
        except OSError:
            return False
        return True

    def _unchanged(self, file: SnapshotFile, target: str) -> bool:
        """Whether a linked file is the very one whose content was checked when it was stored."""
        stat = os.stat(target)
        return file.stamp == (stat.st_ino, stat.st_mtime_ns) and file.size == stat.st_size

    def _check(self, file: SnapshotFile, size: int, digest: bytes) -> None:
        if size != file.size:
            raise SnapshotCorrupt(
                f"the snapshot file {self._where(file)} has {size} of its {file.size} bytes"
            )
        if digest != file.sha256:
            raise SnapshotCorrupt(
                f"the snapshot file {self._where(file)} is damaged: "
                f"SHA-256 {digest.hex()}, recorded {file.sha256.hex()}"
            )

    def _where(self, file: SnapshotFile) -> str:
        if not file.stored:
            return f"{file.path} (kept in its manifest)"
        return f"{self._folder.path(f'{_FILES}/{file.stored}')} ({file.path})"

    # Forgetting

    def forget(self, *, before_epoch: Epoch, since: Since | None = None) -> None:
        """Drop the snapshots of epochs before `before_epoch`, and files that nothing names any more.

        How the instance stood at the end of `before_epoch` is kept, even if it did not run since an earlier one.
        Does not wait for an upload under way: that one does it at its end. What counts is as in `final`.
        """
        with self._due_lock:
            self._due = before_epoch if self._due is None else max(self._due, before_epoch)
            self._since = since
        self._collect_if_due()

    def resume(self, manifest: Manifest, meta: bytes) -> Manifest:
        """This attempt begins where that snapshot was taken: it is written again as this one's own."""
        if manifest.name.begins(self.fence):
            return manifest
        own = replace(manifest, fence=self.fence, meta=meta, resumed=True, narrow=False)
        with self._changing:
            self._claim()
            self._folder.write(f"{_MANIFESTS}/{own.name}", own.to_bytes())
            self._remember(own)
        return own

    def drop(self, names: Sequence[SnapshotName]) -> None:
        """Drop these, and files that nothing names any more."""
        with self._changing:
            self._claim()
            self._drop(names)
            self._collect()

    def discard_from(self, epoch: Epoch) -> None:
        """Drop the snapshots of `epoch` and later ones, which were not committed: the epoch runs again. How it ended
        stays where that binds, and where this attempt resumed."""
        with self._changing:
            self._claim()
            self._drop(snapshot_name.overtaken(self._names(), epoch, self.fence))
            self._collect()

    def _collect_if_due(self) -> None:
        # The thread that holds the lock looks here again after letting go of it, so no request is lost.
        while self._is_due() and self._changing.acquire(blocking=False):
            try:
                self._collect_before()
            finally:
                self._changing.release()

    def _is_due(self) -> bool:
        with self._due_lock:
            return self._due is not None

    def _collect_before(self) -> None:
        with self._due_lock:
            before, self._due = self._due, None
            since = self._since
        if before is None:
            return
        limit = before
        try:
            self._claim()
            self._drop(snapshot_name.outlived(self._names(), limit, self.fence, since))
            self._collect()
        except StorageUnavailable:
            with self._due_lock:
                self._due = limit if self._due is None else max(self._due, limit)
            raise

    def _drop(self, unwanted: Sequence[SnapshotName]) -> None:
        whole = [name for name in unwanted if name not in self._events]
        self._events.drop(unwanted, mine=self._mine)
        for name in unwanted:
            self._manifests.pop(name, None)
        for name in whole:
            self._folder.delete(f"{_MANIFESTS}/{name}")

    def _prune(self, newest: SnapshotName, *, frees_files: bool) -> None:
        unwanted = snapshot_name.superseded(self._names(), newest, self._kept_from)
        self._drop(unwanted)
        if unwanted and frees_files:
            self._collect()

    def _collect(self) -> None:
        """Remove stored files that no manifest names. Only while `_changing` is held."""
        # Files first, manifests second: what a manifest written meanwhile needs is never taken for garbage.
        stored = self._folder.sizes(_FILES)
        needed: set[str] = set()
        for base in self._events.bases:
            needed.update(file.stored for file in base.files)
        for name in self._whole_names():
            try:
                manifest = self._read(name)
            except SnapshotCorrupt as error:
                # What it needs is unknown: keep everything.
                self.corrupt.append(error.message)
                return
            if manifest is not None:
                needed.update(file.stored for file in manifest.files)
        garbage = [text for text in stored if text not in needed and self._mine(stored_fence(text))]
        for text in garbage:
            self._folder.delete(f"{_FILES}/{text}")
        self._forget_shared(garbage)

    def _forget_shared(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._shared = {content: name for content, name in self._shared.items() if name not in gone}
        alive = {sha256 for _, sha256 in self._shared}
        self._hashed = {mark: sha256 for mark, sha256 in self._hashed.items() if sha256 in alive}

    def _mine(self, fence: Fence | None) -> bool:
        return fence is not None and fence <= self.fence

    # Fencing

    def claim(self, fence: Fence | None = None) -> None:
        """Take the instance under this store's fence, or a higher one; `Fenced` if another has a higher one."""
        with self._changing:
            if fence is not None:
                if not self.fence <= fence <= _MAX_FENCE:
                    raise Fenced(f"the fence of {self._folder} cannot go from {self.fence:x} to {fence:x}")
                self.fence = fence
                self._folder.tag = Fence(fence).text
            self._claim()
            self._events.look_again()

    def check(self) -> None:
        """`Fenced` if another has taken the instance under a higher fence."""
        self._not_overtaken(self._claims())

    def _claim(self) -> None:
        if not self.fence:
            raise Fenced("a snapshot store that was opened for looking only cannot change anything")
        claims = self._claims()
        self._not_overtaken(claims)
        if self.fence not in claims:
            self._folder.write(f"{_FENCES}/{Fence(self.fence).text}", b"")
        for fence, text in claims.items():
            if fence < self.fence:
                self._folder.delete(f"{_FENCES}/{text}")
        if not self._swept:
            self._sweep()
            self._swept = True

    def _not_overtaken(self, claims: dict[Fence, str]) -> None:
        highest = max(claims, default=0)
        if highest > self.fence:
            raise Fenced(
                f"the state in {self._folder} was taken over: its fence is {highest:x}, this replica's {self.fence:x}"
            )

    def _claims(self) -> dict[Fence, str]:
        texts = [text for text in self._folder.sizes(_FENCES) if _FENCE_NAME.fullmatch(text)]
        return {read_fence(text)[0]: text for text in texts}

    def _sweep(self) -> None:
        """Remove what earlier incarnations were still writing when they ended."""
        for text in self._folder.sizes(TMP):
            match = _TMP_NAME.fullmatch(text)
            if match is not None and read_fence(match.group(1))[0] < self.fence:
                self._folder.delete(f"{TMP}/{text}")
