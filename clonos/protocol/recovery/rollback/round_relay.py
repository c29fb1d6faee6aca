"""What a replica server keeps of rounds, between the driver and the processes of its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clonos.protocol.fence import Generation
from clonos.protocol.ids import Origin
from clonos.protocol.recovery.rollback.rounds import Rounds, StoredRound


class RoundRelay:
    """Of one start of the query at a time, the newest that it has heard of: rounds are numbered anew in each."""

    def __init__(self) -> None:
        self._rounds = Rounds()
        self._stored: dict[Origin, StoredRound] = {}

    @property
    def rounds(self) -> Rounds:
        """The newest."""
        return self._rounds

    def first_told(self, generation: Generation) -> Rounds | None:
        """What a process is told that begins to serve in that start, if anything."""
        said = self._rounds.in_start(generation)
        return said if said != Rounds(generation=generation) else None

    def say(self, generation: Generation, rounds: Rounds) -> bool:
        """The driver says how far the rounds of a start are; whether that is new to the processes here."""
        if not self._is_of(generation):
            return False
        before, self._rounds = self._rounds, self._rounds.newest(replace(rounds, generation=generation))
        return self._rounds != before

    def stored(self, generation: Generation, origin: Origin, stored: StoredRound) -> None:
        """A process says which checkpoint is durable."""
        if self._is_of(generation):
            self._stored[origin] = stored

    def stored_of(self, generation: Generation) -> Mapping[Origin, StoredRound]:
        """What the driver of a start is to hear."""
        return dict(self._stored) if generation == self._rounds.generation else {}

    def _is_of(self, generation: Generation) -> bool:
        if generation > self._rounds.generation:
            self._rounds, self._stored = Rounds(generation=generation), {}
        return generation == self._rounds.generation
