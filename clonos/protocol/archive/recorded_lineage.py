"""The lineage of an epoch as it was recorded, without repeating it.

The log says how many records of which channels each step consumed, in order. The entries (`step_lineage`) say how far
each channel had come when the epoch began, and which calls the steps were made of. A channel's records are consumed in
the order of their positions, so the archived input says which ones these were. All of it has to fit together: as many
records as were consumed, as many calls as records, as many rows as were sent, up to the last number of the epoch. Where
it does not, nothing is said, and the epoch has to be repeated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clonos.protocol.archive.episode import Episode
from clonos.protocol.archive.lineage import Derivation, any_between, given_as
from clonos.protocol.archive.step_lineage import (
    Beginning,
    CallForm,
    StepCalls,
    decode_entry,
    entries_of,
)
from clonos.protocol.ids import Epoch, LogOffset, Origin, OutputNumber, RecordId, output_after
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.protocol.recovery.causal.determinant_codec import decode_steps

Positions = np.ndarray[Any, Any]
"""Of records of one channel, ascending."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What one step was given, in order, and what its calls gave: rows numbered from `first` on."""

    origin: Origin
    epoch: Epoch
    first: OutputNumber
    count: int
    consumed: Sequence[tuple[int, Positions]]
    calls: StepCalls

    def derivations(self) -> Iterator[Derivation]:
        """Of the calls that gave rows."""
        records = [
            RecordId(channel, position)
            for channel, positions in self.consumed
            for position in positions.tolist()
        ]
        forms = given_as(self.calls.forms, self.count)
        at = record = 0
        for runs in self.calls.runs:
            for rows in runs.by_call():
                inputs: Sequence[RecordId] = ()
                if runs.form is CallForm.RECORD:
                    inputs = records[record : record + 1]
                    record += 1
                elif runs.form is CallForm.BUNDLE:
                    inputs = records
                if rows:
                    own = tuple([form - at for form in forms[at : at + rows]])
                    first = output_after(self.first, at)
                    yield Derivation(
                        self.origin, self.epoch, runs.form.value, first, rows, tuple(inputs), own
                    )
                at += rows


@dataclass(frozen=True, slots=True)
class RecordedEpoch:
    """The steps of an epoch, in order, and the numbers of the last row before it and of the last one of its own."""

    before: OutputNumber
    last: OutputNumber
    steps: Sequence[RecordedStep]

    @property
    def is_of_records(self) -> bool:
        """Whether each row was given by a call for records: of what rows of timers are, is not recorded."""
        calls = (runs for step in self.steps for runs in step.calls.runs)
        return all(runs.form in (CallForm.RECORD, CallForm.BUNDLE) or not runs.given for runs in calls)

    def derivations(self) -> Iterator[Derivation]:
        for step in self.steps:
            yield from step.derivations()

    def of_rows(self, numbers: Sequence[int]) -> Iterator[Derivation]:
        """The calls that gave rows of these numbers, which ascend."""
        for step in self.steps:
            if any_between(numbers, step.first, step.count):
                for each in step.derivations():
                    if any_between(numbers, each.first, each.count):
                        yield each

    def of_records(self, records: set[RecordId]) -> Iterator[Derivation]:
        """The calls that were given any of these, and gave rows."""
        by_channel: dict[int, list[int]] = {}
        for record in sorted(records):
            by_channel.setdefault(record.channel, []).append(record.position)
        for step in self.steps:
            if any(
                len(positions) and _is_any_of(positions, by_channel.get(channel, ()))
                for channel, positions in step.consumed
            ):
                for each in step.derivations():
                    if not records.isdisjoint(each.inputs):
                        yield each


def _is_any_of(positions: Positions, wanted: Sequence[int]) -> bool:
    near = wanted[bisect_left(wanted, positions[0]) : bisect_right(wanted, positions[-1])]
    return any(positions[np.searchsorted(positions, each)] == each for each in near)


def recorded_lineage(episode: Episode, arrived: Mapping[int, Positions]) -> RecordedEpoch | None:
    """`arrived` are the positions of the episode's blocks by channel, each once. None where not all of it was recorded,
    or it does not fit together. Raises LogCorrupt."""
    steps = decode_steps(episode.log, episode.log_start)
    if not steps or steps[0].kind is not Kind.BOUNDARY or steps[0].epoch != episode.epoch:
        return None
    entries = _entries_by_step(episode, steps)
    begun = decode_entry(entries[steps[0].stop]) if steps[0].stop in entries else None
    if not isinstance(begun, Beginning):
        return None
    input_ = _Input(arrived, begun.covered)
    emitted = begun.emitted
    found: list[RecordedStep] = []
    for step in steps[1:]:
        calls = decode_entry(entries[step.stop]) if step.stop in entries else None
        consumed = input_.take(step) if step.kind is Kind.ORDER else []
        if not isinstance(calls, StepCalls) or consumed is None or not _fit(step, consumed, calls):
            return None
        first = output_after(emitted, 1)
        found.append(RecordedStep(episode.origin, episode.epoch, first, step.outputs, consumed, calls))
        emitted = output_after(emitted, step.outputs)
    if emitted != episode.ended.emitted_output or input_.is_left:
        return None
    return RecordedEpoch(begun.emitted, emitted, found)


def _entries_by_step(episode: Episode, steps: Sequence[Step]) -> dict[LogOffset, bytes]:
    """By the log offset at which each step ends. Processes that ran or repeated the same step have recorded the same of
    it: what one contradicts is not known."""
    stops = [step.stop for step in steps]
    found: dict[LogOffset, bytes] = {}
    contradicted: set[LogOffset] = set()
    for piece in episode.lineage:
        own = stops[bisect_right(stops, piece.start) : bisect_right(stops, piece.end)]
        others = len(decode_steps(piece.before, piece.start))
        entries = list(entries_of(piece.entries))[others:]
        if len(entries) != len(own):
            continue
        for stop, entry in zip(own, entries, strict=True):
            if found.setdefault(stop, entry) != entry:
                contradicted.add(stop)
    return {stop: entry for stop, entry in found.items() if stop not in contradicted}


class _Input:
    """What came in an epoch, and was not covered before, until steps take it."""

    def __init__(self, arrived: Mapping[int, Positions], covered: Mapping[int, int]) -> None:
        self._left = {
            channel: positions[np.searchsorted(positions, covered[channel], "right") :]
            if channel in covered
            else positions
            for channel, positions in arrived.items()
        }

    def take(self, step: Step) -> list[tuple[int, Positions]] | None:
        """The records that the step ran: all but one that it passed over. None where some are missing."""
        found: list[tuple[int, Positions]] = []
        for channel, count in step.consumed:
            left = self._left.get(channel)
            if left is None or len(left) < count:
                return None
            found.append((channel, left[:count]))
            self._left[channel] = left[count:]
        if step.skip is not None:
            channel, last = found.pop()
            found.append((channel, last[:-1]))
        return found

    @property
    def is_left(self) -> bool:
        return any(map(len, self._left.values()))


def _fit(step: Step, consumed: Sequence[tuple[int, Positions]], calls: StepCalls) -> bool:
    """Whether a step was made of these calls: each record that it ran is of one, or all are of one bundle."""
    if not step.complete or not calls.has(step.outputs):
        return False
    records = sum(len(positions) for _, positions in consumed)
    alone, bundles = (
        sum(runs.made for runs in calls.runs if runs.form is form)
        for form in (CallForm.RECORD, CallForm.BUNDLE)
    )
    return (alone == records and not bundles) or (bundles == 1 and not alone and records > 0)
