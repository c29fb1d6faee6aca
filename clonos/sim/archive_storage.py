"""What there is in the archive, simulated: production's files of segments in memory, and states by their names."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from clonos.errors import Fenced
from clonos.protocol.archive.archived_state import ArchivedState, log_order
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import NO_EPOCH, Epoch, Origin
from clonos.protocol.line.snapshot_name import SnapshotName
from clonos.storage.segment_files import SegmentFiles


class MemoryFolder:
    """`clonos.storage.segment_files.SegmentFolder` in memory. `changes` is called before each change: the process that
    makes it may die there."""

    def __init__(self, files: dict[str, bytes], changes: Callable[[], None] = lambda: None) -> None:
        self._files = files
        self._changes = changes

    def path(self, name: str) -> str:
        return name

    def sizes(self, directory: str) -> dict[str, int]:
        return {
            name.removeprefix(f"{directory}/"): len(raw)
            for name, raw in self._files.items()
            if name.startswith(f"{directory}/")
        }

    def read(self, name: str) -> bytes:
        if name not in self._files:
            raise FileNotFoundError(name)
        return self._files[name]

    def pieces(self, name: str) -> Iterator[bytes]:
        yield self.read(name)

    def write(self, name: str, data: bytes) -> None:
        self._changes()
        self._files[name] = data

    def delete(self, name: str) -> None:
        self._changes()
        self._files.pop(name, None)


@dataclass(slots=True)
class ArchiveStorage:
    """Of one instance."""

    files: dict[str, bytes] = field(default_factory=dict)
    states: dict[SnapshotName, bytes] = field(default_factory=dict)  # what the instance says of itself
    claimed: Fence = LOWEST_FENCE
    dropped: Epoch = NO_EPOCH  # up to which things may have gone, as the checkers know it

    def segments(self, origin: Origin, changes: Callable[[], None] = lambda: None) -> SegmentFiles:
        return SegmentFiles(MemoryFolder(self.files, changes), "segments", origin)

    def claim(self, fence: Fence) -> None:
        """A process is about to change states. Raises Fenced."""
        if fence < self.claimed:
            raise Fenced("the archived states are another process's")
        self.claimed = fence

    def keep(self, name: SnapshotName, content: InstanceSnapshot) -> None:
        self.states[name] = pickle.dumps(content)

    def forget(self, before: Epoch) -> None:
        for name in [name for name in self.states if name.epoch < before]:
            del self.states[name]

    def state(self, name: SnapshotName) -> ArchivedState:
        return ArchivedState(name, pickle.loads(self.states[name]))

    def newest_first(self) -> list[SnapshotName]:
        """As who repeats an epoch asks for them."""
        return sorted(self.states, key=log_order, reverse=True)
