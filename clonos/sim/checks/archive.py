"""Of every epoch that is over the archive has all that the instance consumed, and the log that it ended with."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from clonos.protocol.archive.episode import ArchivedInput, Episode, Lacking, put_together
from clonos.protocol.ids import Epoch, Origin
from clonos.sim.archive import identities
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.world import World


class Archived:
    """Where the run has an archive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: dict[tuple[Origin, Epoch], int] = {}  # digests of logs

    def takes_snapshot(self, origin: Origin, snapshot: Snapshot) -> None:
        """The last one of an epoch is what counts: attempts end alike, or the epoch was done anew."""
        if snapshot.name.final:
            self._ends[origin, snapshot.name.epoch] = snapshot.instance.log_digest

    def at_the_end(self) -> None:
        inputs: dict[Origin, ArchivedInput] = {}
        for (origin, epoch), digest in sorted(self._ends.items()):
            if epoch > self._world.checkpoint.settled:
                continue
            segments = self._world.checkpoint.archive.get(origin, ())
            found = put_together([each for each in segments if each.epoch == epoch])
            lacking = found if isinstance(found, Lacking) else self._lacks(found, inputs)
            if lacking is not None:
                raise Violation("archive", f"epoch {epoch} of {origin}: {lacking.why}")
            assert isinstance(found, Episode)
            if zlib.crc32(found.log) != digest:
                raise Violation("archive", f"epoch {epoch} of {origin} has another log than it ended with")

    def _lacks(self, episode: Episode, inputs: dict[Origin, ArchivedInput]) -> Lacking | None:
        archived = inputs.setdefault(episode.origin, ArchivedInput())
        for channel, position in identities(episode.blocks):
            archived.takes(channel, position)
        return archived.lacks(episode)
