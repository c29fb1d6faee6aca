"""Of every epoch that is over, but of those that were too much, the archive has all that the instance consumed, the log
that it ended with, which records each of its steps ran, and which process ran it; and a state to begin from."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from clonos.errors import Where
from clonos.protocol.archive.archived_state import ArchivedState, EpochLog
from clonos.protocol.archive.episode import ArchivedInput, Episode, Lacking, Share, consumed, put_together
from clonos.protocol.archive.recorded_lineage import Positions, recorded_lineage
from clonos.protocol.archive.stored_segment import StoredSegments
from clonos.protocol.fence import Fence
from clonos.protocol.ids import NO_EPOCH, Epoch, LogOffset, Origin, RecordId
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.sim.archive import archived_records
from clonos.sim.archive_storage import ArchiveStorage
from clonos.sim.checks.violation import Violation

if TYPE_CHECKING:
    from clonos.sim.checkpoint import Snapshot
    from clonos.sim.world import World


class Archived:
    """Where the run has an archive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._consumed: dict[tuple[Origin, int, int], tuple[Fence, int]] = {}
        self._ends: dict[tuple[Origin, Epoch], int] = {}  # digests of logs
        self._ran: dict[tuple[Origin, LogOffset], set[tuple[RecordId, ...]]] = {}  # by steps that end there
        self._live: dict[tuple[Origin, LogOffset], set[int]] = {}  # processes, likewise

    def takes_snapshot(self, origin: Origin, snapshot: Snapshot) -> None:
        """The last one of an epoch is what counts: attempts end alike, or the epoch was done anew."""
        if snapshot.name.final:
            self._ends[origin, snapshot.name.epoch] = snapshot.instance.log_digest

    def step_ends(self, origin: Origin, stop: LogOffset, ran: tuple[RecordId, ...]) -> None:
        """In a process, whether it repeats the step or not. Another step may have ended there in a history that was
        given up."""
        self._ran.setdefault((origin, stop), set()).add(ran)

    def ran_live(self, origin: Origin, stop: LogOffset, process: int) -> None:
        """The process has run the step that ends there for the first time."""
        self._live.setdefault((origin, stop), set()).add(process)

    def consumes(self, origin: Origin, fence: Fence, where: Where, content: int) -> None:
        """What the last process that consumed a record was given of it."""
        assert where.channel is not None and where.position is not None
        known = self._consumed.get((origin, where.channel, where.position))
        if known is None or known[0] <= fence:
            self._consumed[origin, where.channel, where.position] = fence, content

    def drops(self, origin: Origin, behind: Epoch, stored: list[StoredSegments], size: int) -> None:
        """What is of epochs up to this one is about to go, of these files."""
        gone = [each for each in stored if each.last <= behind]
        stays = sum(each.size for each in stored if each.last > behind)
        newest = max((each.last for each in gone), default=NO_EPOCH)
        if gone and stays + sum(each.size for each in gone if each.last == newest) <= size:
            raise Violation("archive", f"epoch {newest} of {origin} goes, and there is room for it")
        storage = self._world.checkpoint.archive(origin)
        storage.dropped = max(behind, storage.dropped)

    def at_the_end(self) -> None:
        over = [each for each in sorted(self._ends) if each[1] <= self._world.checkpoint.settled]
        for origin in sorted({origin for origin, _ in over}):
            storage = self._world.checkpoint.archive(origin)
            kept = [epoch for each, epoch in over if each == origin and epoch > storage.dropped]
            episodes = self._episodes(origin, storage, kept)
            began = self._begins(origin, storage, episodes)
            for epoch, episode in episodes.items():
                if (lacking := self._lacks(episode, began)) is not None:
                    raise Violation("archive", f"epoch {epoch} of {origin}: {lacking.why}")
                self._check_lineage(episode)
                self._check_processes(episode)

    def _episodes(self, origin: Origin, storage: ArchiveStorage, epochs: list[Epoch]) -> dict[Epoch, Episode]:
        files = storage.segments(origin)
        names = files.names()
        found: dict[Epoch, Episode] = {}
        reached: LogOffset | None = None
        for epoch in epochs:
            episode = put_together(list(files.read([name for name in names if name.epoch == epoch])))
            if isinstance(episode, Lacking):
                raise Violation("archive", f"epoch {epoch} of {origin}: {episode.why}")
            if zlib.crc32(episode.log) != self._ends[origin, epoch]:
                raise Violation("archive", f"epoch {epoch} of {origin} has another log than it ended with")
            if reached is not None and episode.log_start != reached:
                raise Violation(
                    "archive", f"epoch {epoch} of {origin} does not go on where the one before it ends"
                )
            found[epoch], reached = episode, episode.ended.log_end
        return found

    def _begins(
        self, origin: Origin, storage: ArchiveStorage, episodes: dict[Epoch, Episode]
    ) -> ArchivedInput:
        """Where the first of the epochs that are kept begins to be repeated. Each state that can be begun from is one
        that the instance had."""
        logs = {
            epoch: self._log_of(origin, storage, epoch) for epoch in {name.epoch for name in storage.states}
        }
        first: ArchivedState | None = None
        for name in storage.newest_first():
            state, own = storage.state(name), logs[name.epoch]
            if wrong := state.wrong(origin, own):
                raise Violation("archive", f"state {name} of {origin}: {wrong}")
            following = next((epoch for epoch in episodes if epoch >= name.epoch + name.final), None)
            if following is None or not state.goes_on(origin, own, episodes[following], storage.states):
                continue
            if name.final and state.content.log_digest != self._ends[origin, name.epoch]:
                raise Violation("archive", f"state {name} of {origin} is of a history that was given up")
            if name.final and name.epoch < min(episodes):
                first = first or state
        if first is not None:
            pending = (record[0] for record in first.content.pending)
            return ArchivedInput(first.content.covered, pending)
        if episodes and storage.dropped != NO_EPOCH:
            raise Violation("archive", f"epoch {min(episodes)} of {origin} has no state to begin from")
        return ArchivedInput()

    def _lacks(self, episode: Episode, archived: ArchivedInput) -> Lacking | None:
        for channel, position, content in archived_records(episode.blocks):
            if not archived.takes(channel, position):
                continue
            _, consumed = self._consumed.get((episode.origin, channel, position), (None, content))
            if content != consumed:
                where = f"epoch {episode.epoch} of {episode.origin}"
                raise Violation("archive", f"{where}: record {position} of channel {channel} was another one")
        return archived.lacks(episode)

    @staticmethod
    def _log_of(origin: Origin, storage: ArchiveStorage, epoch: Epoch) -> EpochLog | None:
        files = storage.segments(origin)
        names = [name for name in files.names() if name.epoch == epoch]
        return EpochLog.of(put_together(list(files.read(names))), (name.fence for name in names))

    def _check_processes(self, episode: Episode) -> None:
        for step in decode_steps(episode.log, episode.log_start)[1:]:
            for part in episode.parts:
                share = part.share(step)
                if share is None or part.ran_on is None:
                    continue
                ran = part.ran_on.pid in self._live.get((episode.origin, step.stop), ())
                if (share is Share.RAN and not ran) or (share is Share.REPEATED and ran):
                    where = f"epoch {episode.epoch} of {episode.origin}, step up to {step.stop}"
                    raise Violation("archive", f"{where}: process {part.ran_on.pid} has {share} it: {ran=}")

    def _check_lineage(self, episode: Episode) -> None:
        """It is there where the epoch has consumed what came in it, as epochs do."""
        arrived = _arrived(episode)
        known = recorded_lineage(episode, arrived)
        steps = decode_steps(episode.log, episode.log_start)
        where = f"epoch {episode.epoch} of {episode.origin}"
        if known is None:
            begins = [step.kind is Kind.BOUNDARY for step in steps]
            took = consumed(episode.log, episode.log_start)
            if begins[:1] == [True] and begins.count(True) == 1 and took == _counts(arrived):
                raise Violation("archive", f"{where} has no lineage")
            return
        for step, found in zip(steps[1:], known.steps, strict=True):
            said = tuple(
                RecordId(channel, position)
                for channel, positions in found.consumed
                for position in positions.tolist()
            )
            ran = self._ran[episode.origin, step.stop]
            if said not in ran or found.count != step.outputs:
                raise Violation("archive", f"{where} says that a step ran {said}, and it ran {ran}")


def _arrived(episode: Episode) -> dict[int, Positions]:
    found: dict[int, set[int]] = {}
    for channel, position, _ in archived_records(episode.blocks):
        found.setdefault(channel, set()).add(position)
    return {channel: np.array(sorted(positions)) for channel, positions in found.items()}


def _counts(arrived: dict[int, Positions]) -> dict[int, int]:
    return {channel: len(positions) for channel, positions in arrived.items()}
