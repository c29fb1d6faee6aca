"""Of every epoch that is over the archive has all that the instance consumed, the log that it ended with, which records
each of its steps ran, and which process ran it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from clonos.protocol.archive.episode import ArchivedInput, Episode, Lacking, Share, consumed, put_together
from clonos.protocol.archive.recorded_lineage import Positions, recorded_lineage
from clonos.protocol.ids import Epoch, LogOffset, Origin, RecordId
from clonos.protocol.recovery.causal.determinant import Kind
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
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

    def at_the_end(self) -> None:
        inputs: dict[Origin, ArchivedInput] = {}
        for (origin, epoch), digest in sorted(self._ends.items()):
            if epoch > self._world.checkpoint.settled:
                continue
            segments = self._world.checkpoint.archive.get(origin, ())
            found = put_together([each for each in segments if each.epoch == epoch])
            lacking = found if isinstance(found, Lacking) else _lacks(found, inputs)
            if lacking is not None:
                raise Violation("archive", f"epoch {epoch} of {origin}: {lacking.why}")
            assert isinstance(found, Episode)
            if zlib.crc32(found.log) != digest:
                raise Violation("archive", f"epoch {epoch} of {origin} has another log than it ended with")
            self._check_lineage(found)
            self._check_processes(found)

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


def _lacks(episode: Episode, inputs: dict[Origin, ArchivedInput]) -> Lacking | None:
    archived = inputs.setdefault(episode.origin, ArchivedInput())
    for channel, position in identities(episode.blocks):
        archived.takes(channel, position)
    return archived.lacks(episode)


def _arrived(episode: Episode) -> dict[int, Positions]:
    found: dict[int, set[int]] = {}
    for channel, position in identities(episode.blocks):
        found.setdefault(channel, set()).add(position)
    return {channel: np.array(sorted(positions)) for channel, positions in found.items()}


def _counts(arrived: dict[int, Positions]) -> dict[int, int]:
    return {channel: len(positions) for channel, positions in arrived.items()}
