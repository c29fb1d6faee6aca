"""The experiments with one operator: replays, other orders, other bundles, and how each finding is made small."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from clonos.protocol.recovery.dependence import Sensitivity, Service
from clonos.testing.classification import schedule
from clonos.testing.classification.counterexample import Between, Counterexample, Side
from clonos.testing.classification.laboratory import Difference, Laboratory, Place
from clonos.testing.classification.observation import Observation, difference, what_differs
from clonos.testing.classification.schedule import Bundles
from clonos.testing.classification.script import Recorded, Script
from clonos.testing.classification.shrink import fewest
from clonos.testing.classification.trials import Trial
from clonos.testing.driver.recording import Recording


class Experiments:
    """Gathers what trials show. An experiment whose gravest outcome is known is not made again."""

    def __init__(self, laboratory: Laboratory, names: Sequence[str]) -> None:
        """`names` are those of the columns of a record."""
        self.services: frozenset[Service] = frozenset()
        self.replay: Counterexample | None = None
        self.found: dict[Between, tuple[Sensitivity, Counterexample]] = {}
        self.raised: list[tuple[Trial, str]] = []
        self.sequences_same = True  # of the rows of each key, whatever the order of the records
        self._laboratory = laboratory
        self._names = names
        self._recorded: list[tuple[Trial, Bundles, Recording]] = []
        self._played: dict[Bundles, Recorded] = {}  # of the trial

    @property
    def got_through(self) -> bool:
        """Whether the function got through at all."""
        return bool(self._recorded)

    @property
    def is_hidden(self) -> bool:
        """Whether two runs differ although nothing does: then no other experiment says anything."""
        return self.replay is not None and self.replay.place is not Place.OTHER_HASH_SEED

    def examine(self, trial: Trial, choices: Random) -> None:
        self._played.clear()
        order = schedule.interleaving(trial.channels, choices)
        self._record(trial, schedule.cut(order, choices))
        for bundled in (schedule.one_by_one, schedule.together):
            other = self._other_order(trial, choices)
            if not self.is_hidden and other != order:
                self._compare(Between.ORDER, trial, bundled(order), bundled(other))
        for bundles in (schedule.together(order), schedule.cut(order, choices)):
            if not self.is_hidden:
                self._compare(Between.BUNDLES, trial, schedule.one_by_one(order), bundles)

    def _other_order(self, trial: Trial, choices: Random) -> schedule.Order:
        draw = schedule.one_after_the_other if choices.random() < 0.5 else schedule.interleaving
        return draw(trial.channels, choices)

    # ------------------------------------------------------------- replays

    def _record(self, trial: Trial, bundles: Bundles) -> None:
        """A run, which is repeated at once in the same process."""
        recorded = self._play(trial, bundles)
        self.services |= recorded.services
        if recorded.recording is None:
            self.raised.append((trial, recorded.observation.raised))
            return
        self._recorded.append((trial, bundles, recorded.recording))
        if not self.is_hidden:
            self._repeat(trial, bundles, recorded.recording, {Place.SAME_PROCESS})

    def repeat_elsewhere(self) -> None:
        """Repeat the runs in other processes, the last one first: so these have another past than the first process,
        and what it keeps of other runs shows. A difference under another hash seed gives way to a graver one."""
        for trial, bundles, recording in reversed(self._recorded):
            if self.is_hidden:
                return
            places = {Place.OTHER_PROCESS}
            if self.replay is None:
                places.add(Place.OTHER_HASH_SEED)
            self._repeat(trial, bundles, recording, places)

    def _repeat(self, trial: Trial, bundles: Bundles, recording: Recording, places: set[Place]) -> None:
        differing = self._laboratory.replay(places, self._script(trial, bundles), recording)
        if differing:
            self.replay = self._smallest_replay(trial, bundles, differing[0])

    def _smallest_replay(self, trial: Trial, bundles: Bundles, found: Difference) -> Counterexample:
        def tried(kept: Sequence[int]) -> tuple[Observation, str]:
            left = schedule.only(bundles, kept)
            recorded = self._laboratory.play(self._script(trial, left))
            if recorded.recording is None:
                return recorded.observation, ""
            differing = self._laboratory.replay({found.place}, self._script(trial, left), recorded.recording)
            return recorded.observation, differing[0].what if differing else ""

        kept = fewest(range(len(trial.rows)), lambda kept: bool(tried(kept)[1]))
        seen, what = tried(kept)
        side = self._side(trial, schedule.only(bundles, kept), seen)
        # A process that differs only once does not do so again.
        return Counterexample(Between.REPLAY, len(kept), what or found.what, side, place=found.place)

    # -------------------------------------------------- orders and bundles

    def _compare(self, between: Between, trial: Trial, one: Bundles, other: Bundles) -> None:
        known = self.found[between][0] if between in self.found else Sensitivity.INSENSITIVE
        if known is Sensitivity.DIVERGENT:
            return
        seen = self._play(trial, one).observation, self._play(trial, other).observation
        if between is Between.ORDER and seen[0].by_key() != seen[1].by_key():
            self.sequences_same = False
        found = difference(*seen)
        if found > known:
            self.found[between] = found, self._smallest_pair(between, trial, one, other, found)

    def _smallest_pair(
        self, between: Between, trial: Trial, one: Bundles, other: Bundles, found: Sensitivity
    ) -> Counterexample:
        def tried(kept: Sequence[int]) -> tuple[Observation, Observation]:
            pair = [self._play(trial, schedule.only(bundles, kept)) for bundles in (one, other)]
            return pair[0].observation, pair[1].observation

        kept = fewest(range(len(trial.rows)), lambda kept: difference(*tried(kept)) is found)
        first, second = tried(kept)
        return Counterexample(
            between,
            len(kept),
            what_differs(first, second),
            self._side(trial, schedule.only(one, kept), first),
            self._side(trial, schedule.only(other, kept), second),
        )

    # -------------------------------------------------------------- inside

    def _play(self, trial: Trial, bundles: Bundles) -> Recorded:
        """Once for all that is compared with it: two runs that differ by themselves are found by replays."""
        if bundles not in self._played:
            self._played[bundles] = self._laboratory.play(self._script(trial, bundles))
        return self._played[bundles]

    def _script(self, trial: Trial, bundles: Bundles) -> Script:
        rows = tuple([tuple([trial.rows[number] for number in bundle]) for bundle in bundles])
        return Script(rows, trial.seed)

    def _side(self, trial: Trial, bundles: Bundles, seen: Observation) -> Side:
        return Side.of(bundles, {number: self._shown(row) for number, row in enumerate(trial.rows)}, seen)

    def _shown(self, row: Sequence[object]) -> str:
        return f"({', '.join([f'{name}={value!r}' for name, value in zip(self._names, row)])})"
