"""The segments of an instance in an archive's folder: each in a file of its own, until many go into one
(`protocol.archive.compaction`).

A file with several appears before those of its segments go, so that a segment may be in both: its own file counts. A
process that was killed in between leaves it so; what puts segments together next removes their own files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, Protocol

from clonos.errors import LogCorrupt
from clonos.protocol.archive.archive_segment import ArchiveSegment
from clonos.protocol.archive.compaction import FEWEST, to_compact
from clonos.protocol.archive.stored_segment import SegmentName, StoredSegments
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Epoch, Origin
from clonos.storage.compacted_segments import CompactedName, Place, compacted, index_bytes, read_index
from clonos.storage.segment_codec import decode_segment, encode_segment

_AT_ONCE: Final = 8
"""Indexes that are read side by side, where storage takes long to answer."""


class SegmentFolder(Protocol):
    """What is asked of a folder (`storage.folder`)."""

    def path(self, name: str) -> str: ...
    def sizes(self, directory: str) -> dict[str, int]: ...
    def read(self, name: str) -> bytes: ...
    def pieces(self, name: str) -> Iterator[bytes]: ...
    def write(self, name: str, data: bytes) -> None: ...
    def delete(self, name: str) -> None: ...


class SegmentFiles:
    """See the module, of one instance. `directory` is theirs in the folder. What other processes do meanwhile is seen
    when a segment is not found any more where it was."""

    def __init__(self, folder: SegmentFolder, directory: str, origin: Origin) -> None:
        self._folder = folder
        self._origin = origin
        self._directory = directory
        self._single: dict[SegmentName, int] = {}  # with their bytes
        self._compacted: dict[CompactedName, int] = {}
        self._indexes: dict[CompactedName, dict[SegmentName, Place]] = {}
        self._where: dict[SegmentName, list[CompactedName]] = {}  # more than one where writers were cut short
        self._at_hand: tuple[CompactedName, bytes] | None = None  # the last one that was read

    def _path(self, name: SegmentName | CompactedName) -> str:
        return f"{self._directory}/{name}"

    # ---------------------------------------------------------------- what there is

    def _list(self) -> None:
        sizes = self._folder.sizes(self._directory)
        self._single = {name: sizes[str(name)] for name in filter(None, map(SegmentName.parse, sizes))}
        self._compacted = {name: sizes[str(name)] for name in filter(None, map(CompactedName.parse, sizes))}

    def stored(self) -> list[StoredSegments]:
        """Its files. One of a segment that is in another file, too, does not count: it goes (`drop_leftovers`)."""
        self._look_for_leftovers()
        return [
            *(
                StoredSegments(each.epoch, each.epoch, each.written_at, size)
                for each, size in self._single.items()
                if each not in self._where
            ),
            *(
                StoredSegments(each.first, each.last, each.written_at, size)
                for each, size in self._compacted.items()
            ),
        ]

    def names(self) -> dict[SegmentName, int]:
        """In order, with their bytes."""
        self._look()
        sizes = {name: place.size for index in self._indexes.values() for name, place in index.items()}
        sizes |= self._single
        return dict(sorted(sizes.items()))

    def left_by(self, epoch: Epoch) -> set[Fence]:
        """The processes that have left segments of an epoch."""
        return {name.fence for name in self._names_of(epoch)}

    def has_recorded(self, epoch: Epoch) -> bool:
        """Whether the last segment of an epoch can be read, and has not been erased."""
        last = self._names_of(epoch)[-1:]
        try:
            return any(each.erased_at is None for each in self.read(last))
        except LogCorrupt:
            return False
        finally:
            self._at_hand = None  # this is not a reader's, which asks for the next one

    def _names_of(self, epoch: Epoch) -> list[SegmentName]:
        """Of the segments of an epoch, in order."""
        self._list()
        self._look_into([several for several in self._compacted if epoch in several.epochs])
        return sorted(name for name in {*self._single, *self._where} if name.epoch == epoch)

    def _look(self) -> None:
        """List what there is, and read the indexes of files that are new."""
        self._list()
        self._look_into(self._compacted)

    def _look_into(self, names: Iterable[CompactedName]) -> None:
        """Read the indexes of these that are new; those that are known of others stay known while they are there."""
        new = [name for name in names if name not in self._indexes]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            read = dict(zip(new, pool.map(self._index, new), strict=True))
        known = {name: index for name, index in self._indexes.items() if name in self._compacted}
        self._indexes = known | {name: index for name, index in read.items() if index is not None}
        self._where = {}
        for place, index in sorted(self._indexes.items()):
            for name in index:
                self._where.setdefault(name, []).append(place)

    def _index(self, name: CompactedName) -> dict[SegmentName, Place] | None:
        """None where the file has gone. Of one that is damaged there is a damaged segment for each epoch that it may
        have."""
        path = self._path(name)
        begun = bytearray()
        try:
            for piece in self._folder.pieces(path):
                begun += piece
                if len(begun) >= index_bytes(begun):
                    break
            return read_index(bytes(begun), self._folder.path(path))
        except FileNotFoundError:
            return None
        except LogCorrupt:
            return {SegmentName(Epoch(epoch), 0, LOWEST_FENCE, 0): Place(0, 0) for epoch in name.epochs}

    # ---------------------------------------------------------------- reading

    def read(self, names: Iterable[SegmentName]) -> Iterator[ArchiveSegment]:
        """Those that are still there. Raises LogCorrupt."""
        for name in names:
            found = self._found(name)
            if found is None:
                self._look()  # it may have gone into a file with others
                found = self._found(name)
            if found is not None:
                yield self._checked(name, decode_segment(*found), found[1])

    def _checked(self, name: SegmentName, found: ArchiveSegment, where: str) -> ArchiveSegment:
        """Raises LogCorrupt where another one is in its place. By its time alone it is no other one."""
        said = _name_of(found)
        if found.origin != self._origin or said._replace(written_at=name.written_at) != name:
            raise LogCorrupt(f"{where} has another segment: {said} of {found.origin}")
        return found

    def _found(self, name: SegmentName) -> tuple[bytes, str] | None:
        """A segment's bytes, and where they are. Raises LogCorrupt."""
        places = [] if name in self._single else self._where.get(name, [])
        try:
            if not places:
                path = self._path(name)
                return self._folder.read(path), self._folder.path(path)
            place = places[-1]
            raw = self._indexes[place][name].of(self._content(place))
            return raw, f"{name} in {self._folder.path(self._path(place))}"
        except FileNotFoundError:
            return None

    def _content(self, name: CompactedName) -> bytes:
        """Raises LogCorrupt where it is damaged, but for the segments themselves."""
        if self._at_hand is None or self._at_hand[0] != name:
            path = self._path(name)
            raw = self._folder.read(path)
            read_index(raw, self._folder.path(path))
            self._at_hand = name, raw
        return self._at_hand[1]

    # ---------------------------------------------------------------- writing

    def write(self, segment: ArchiveSegment) -> int:
        """Make it durable; its bytes."""
        raw = encode_segment(segment)
        self._folder.write(self._path(_name_of(segment)), raw)
        return len(raw)

    def drop_upto(self, epoch: Epoch) -> None:
        """All files that have nothing behind it, the oldest first: what is left is behind what is gone, whenever the
        process ends."""
        self._list()
        ends = [(name.epoch, self._path(name)) for name in self._single]
        ends += [(name.last, self._path(name)) for name in self._compacted]
        for last, path in sorted(ends):
            if last <= epoch:
                self._folder.delete(path)

    def replace(self, names: Iterable[SegmentName], left: Iterable[ArchiveSegment]) -> None:
        """Nothing of these is there behind it, but what is left instead, under some of their names."""
        self._look()
        gone = set(names)
        kept = set()
        for segment in left:
            self.write(segment)
            kept.add(_name_of(segment))
        for place in sorted({place for name in gone for place in self._where.get(name, ())}):
            self._rewrite(place, gone)
        for name in gone - kept:
            self._folder.delete(self._path(name))

    def unreadable(self, epochs: Iterable[Epoch]) -> dict[range, str]:
        """Files with several segments that cannot be read, so that `replace` of one of these epochs leaves nothing of
        them: their epochs, and what is wrong."""
        self._look()
        found: dict[range, str] = {}
        for name in self._compacted:
            if any(epoch in name.epochs for epoch in epochs):
                try:
                    self._content(name)
                except LogCorrupt as error:
                    found[name.epochs] = error.message
        return found

    def _rewrite(self, place: CompactedName, gone: set[SegmentName]) -> None:
        """Under a name that is the same whenever this is done again."""
        try:
            raw = self._content(place)
        except LogCorrupt:
            rest = []
        else:
            rest = [(name, at.of(raw)) for name, at in self._indexes[place].items() if name not in gone]
        if rest:
            name, content = compacted(rest, place.fence)
            self._folder.write(self._path(name), content)
        self._folder.delete(self._path(place))

    def compact(self, upto: Epoch, fence: Fence, fewest: int = FEWEST) -> None:
        """Put segments of epochs up to that, which are over, together, where there are at least so many."""
        self.drop_leftovers()
        for names in to_compact(self._single, [each.epochs for each in self._compacted], upto, fewest):
            parts = list(self._readable(names))
            if parts:
                name, content = compacted(parts, fence)
                self._folder.write(self._path(name), content)
            for each, _ in parts:
                self._folder.delete(self._path(each))

    def drop_leftovers(self) -> None:
        """Remove the own files of segments that are in a file with others, too, as they are there: a writer was killed
        before it did. What differs stays, as where an epoch was erased and the erasure was cut short."""
        self._look_for_leftovers()
        for name in sorted(name for name in self._single if name in self._where):
            if self._is_in_another(name):
                self._folder.delete(self._path(name))
                del self._single[name]

    def _look_for_leftovers(self) -> None:
        """List what there is, and read the indexes of files that may have what is in others, too."""
        self._list()
        singles = sorted(self._single)
        self._look_into([name for name in self._compacted if _any_within(singles, name)])

    def _is_in_another(self, name: SegmentName) -> bool:
        with suppress(FileNotFoundError, LogCorrupt):
            raw = self._folder.read(self._path(name))
            return any(
                self._indexes[place][name].of(self._content(place)) == raw for place in self._where[name]
            )
        return False

    def _readable(self, names: Iterable[SegmentName]) -> Iterator[tuple[SegmentName, bytes]]:
        """Of their own files; those that are damaged, or encrypted with another key, stay as they are."""
        for name in names:
            with suppress(FileNotFoundError, LogCorrupt):
                yield name, self._folder.read(self._path(name))


def _any_within(singles: Sequence[SegmentName], several: CompactedName) -> bool:
    """Whether any of these, which are in order, is of an epoch that a file with several may have."""
    at = bisect_left(singles, several.first, key=lambda name: name.epoch)
    return at < len(singles) and singles[at].epoch <= several.last


def _name_of(segment: ArchiveSegment) -> SegmentName:
    return SegmentName(segment.epoch, segment.written_at, segment.fence, segment.number)
