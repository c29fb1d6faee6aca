"""Derivations out of an archive: what went into which rows was recorded, or is found by repeating instances."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.recorded import recorded, recorded_from
from clonos.archive.tracing import RowIsMade, TracedCall, Watcher
from clonos.errors import DivergenceError, StateError
from clonos.operators.kept_entries import keeps_entries
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.input_sets import InputSets, MadeOf
from clonos.protocol.archive.lineage import Derivation, any_between, given_as
from clonos.protocol.archive.step_lineage import CallForm
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId, channel_origin
from clonos.protocol.recovery.causal.determinant import Step
from clonos.wire.block import parse_block
from clonos_standby.cluster.spec import NodeSpec


class _InputWatcher(Watcher):
    """Follows what becomes of records in state. `begun` is the epoch with which the repetition began."""

    keeps_state = False
    keeps_rows = False

    def __init__(self, input_sets: InputSets | None) -> None:
        super().__init__()
        self.input_sets = input_sets
        self.is_on = input_sets is not None
        self.begun: Epoch | None = None

    def begins(self, epoch: Epoch, node: NodeSpec) -> None:
        """An epoch is about to be repeated."""
        self.begun = epoch if self.begun is None else self.begun


class CallWatcher(_InputWatcher):
    """Tells of the calls of epochs from `since` on, of each as derivations."""

    def __init__(
        self,
        instance: ArchivedInstance,
        tells: Callable[[TracedCall, list[Derivation]], None],
        since: Epoch,
        input_sets: InputSets,
    ) -> None:
        super().__init__(input_sets)
        self._instance = instance
        self._tells = tells
        self._since = since
        self.epoch = since  # that is repeated

    def begins(self, epoch: Epoch, node: NodeSpec) -> None:
        super().begins(epoch, node)
        self.epoch = epoch

    def ended(self, call: TracedCall) -> None:
        if self.epoch >= self._since:
            self._tells(call, derivations(self._instance, self.epoch, call, self.begun))


class _MakingWatcher(_InputWatcher):
    """Looks for the calls that made rows of these `numbers`, in order, and ends the repetition behind the last. Without
    input sets it looks at the steps alone that made them."""

    def __init__(self, numbers: list[int], input_sets: InputSets | None, *, keeps_rows: bool) -> None:
        super().__init__(input_sets)
        self.keeps_rows = keeps_rows
        self._numbers = numbers
        self.first = numbers[0]
        self.found: list[TracedCall] = []

    def step_begins(self, step: Step) -> None:
        super().step_begins(step)
        at = bisect_left(self._numbers, self._next)
        if at == len(self._numbers):
            raise RowIsMade
        self.is_on = self.input_sets is not None or self._numbers[at] < self._next + step.outputs

    def ended(self, call: TracedCall) -> None:
        if any_between(self._numbers, call.first, len(call.outputs)):
            self.found.append(call)


class ArchivedDerivations:
    """Of a query (`protocol.archive.lineage.Derivations`). Each method raises StateError where something is lacking.

    `through_state`: also over what a user's function keeps in its state, which is an upper bound. `keeps_rows`: with
    what the records said that state had kept."""

    def __init__(
        self, query: ArchivedQuery, *, through_state: bool = False, keeps_rows: bool = False
    ) -> None:
        self._query = query
        self._through_state = through_state
        self._keeps_rows = keeps_rows

    def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation]:
        instance = self._query.operator_instance(origin)
        for epoch, here in _by_epoch(instance, numbers):
            yield from self._making(instance, epoch, here)

    def of_records(self, node: NodeId, records: frozenset[RecordId]) -> Iterator[Derivation]:
        """A row of an operator that a reader was not sent, as one of another output, has gone into nothing. A record of
        a source has to be found."""
        readers = self._query.instances_of(node)
        for origin, group in _by_origin(records):
            sender = self._query.instance(origin)
            if sender is None:
                yield from self._of_source(readers, group)
                continue
            for epoch, numbers in _by_epoch(sender, (record.position for record in group)):
                wanted = {RecordId(origin.channel, number) for number in numbers}
                for reader in readers:
                    yield from self._given(reader, epoch, _came(reader, epoch, wanted))

    def _of_source(self, readers: list[ArchivedInstance], records: set[RecordId]) -> Iterator[Derivation]:
        left = set(records)
        for reader in readers:
            for epoch in sorted(reader.epochs):
                if left and reader.has_ended(epoch) and (here := _came(reader, epoch, left)):
                    left -= here
                    yield from self._given(reader, epoch, here)
        if left:
            lost = min(left)
            raise StateError(
                f"no epoch in the archive that has ended was given position {lost.position} of "
                f"{self._query.source(channel_origin(lost.channel))}",
                hint="`clonos archive list` shows which epochs there are",
            )

    def _making(self, instance: ArchivedInstance, epoch: Epoch, numbers: list[int]) -> Iterator[Derivation]:
        """The calls that made rows of an epoch. Where nothing is kept that could be part of it, what else is repeated
        need not be looked at."""
        found: list[Derivation] = []
        keeps = self._through_state
        if not keeps and (known := recorded(instance, epoch)) is not None:
            found = [*known.of_rows(numbers)]
        elif not keeps:
            found = self._alone(instance, epoch, numbers)
            keeps = keeps_entries(instance.operator_form(epoch))
        if keeps or any(each.form not in (CallForm.RECORD, CallForm.BUNDLE) for each in found):
            found = self._with_kept(instance, epoch, numbers)
        wanted = [each for each in found if any_between(numbers, each.first, each.count)]
        made = {row.position for one in wanted for row in one.rows()}
        if lost := [number for number in numbers if number not in made]:
            raise StateError(f"epoch {epoch} of {instance} made no row with the number {lost[0]}")
        yield from wanted

    def _alone(self, instance: ArchivedInstance, epoch: Epoch, numbers: list[int]) -> list[Derivation]:
        """What the calls were given that made the rows."""
        watcher = _MakingWatcher(numbers, None, keeps_rows=False)
        if (why := self._repeat(instance, epoch, watcher, None)) is not None:
            raise lacking(instance, f"epoch {epoch}", why.why)
        return [each for call in watcher.found for each in derivations(instance, epoch, call, None)]

    def _with_kept(self, instance: ArchivedInstance, epoch: Epoch, numbers: list[int]) -> list[Derivation]:
        """Where rows are of what was kept before the repetition began, it begins farther back, as far as the archive
        goes."""
        found: list[Derivation] = []
        for since in (None, *instance.starts_before(epoch)):
            sets = InputSets(through_state=self._through_state)
            watcher = _MakingWatcher(numbers, sets, keeps_rows=self._keeps_rows)
            try:
                why = self._repeat(instance, epoch, watcher, since)
            except DivergenceError:
                if found:
                    break
                raise
            if why is not None:
                if found:
                    break
                raise lacking(instance, f"epoch {epoch}", why.why)
            found = [
                each for call in watcher.found for each in derivations(instance, epoch, call, watcher.begun)
            ]
            if all(
                each.kept_before is None for each in found if any_between(numbers, each.first, each.count)
            ):
                break
        return found

    def _repeat(
        self, instance: ArchivedInstance, epoch: Epoch, watcher: _MakingWatcher, since: Epoch | None
    ) -> Lacking | None:
        with desk_for(instance, watcher) as desk:
            first = OutputNumber(watcher.first)
            return instance.repeated_to_row(first, epoch, desk, since=since, begins=watcher.begins)

    def _given(
        self, instance: ArchivedInstance, epoch: Epoch, records: set[RecordId]
    ) -> Iterator[Derivation]:
        """The calls that gave rows of records, which came in an epoch: as long as any of them is kept, or waits."""
        if not records:
            return
        if not self._through_state and (known := recorded_from(instance, epoch)) is not None:
            yield from known[0].of_records(records)  # which is all, where nothing is kept
            return
        left, found = set(records), list[Derivation]()

        def tells(call: TracedCall, made: list[Derivation]) -> None:
            left.difference_update(RecordId(each.channel, each.position) for each in call.inputs)
            for one in made:
                kept = tuple(part for each in one.kept if (part := each.followed()) is not None)
                if kept or not records.isdisjoint(one.inputs):
                    found.append(replace(one, kept=kept, kept_before=None))

        last = instance.last_ended
        if last is not None and instance.has_ended(epoch):
            sets = InputSets(through_state=self._through_state, is_followed=records.__contains__)
            watcher = CallWatcher(instance, tells, epoch, sets)
            with desk_for(instance, watcher) as desk:
                for each in instance.repeated(last, desk, since=epoch, begins=watcher.begins):
                    if isinstance(each, Lacking):
                        raise lacking(instance, f"what became of records of epoch {epoch}", each.why)
                    yield from found
                    found.clear()
                    if each.epoch >= epoch and not left and not sets.still_follows:
                        return
        if left:
            raise lacking(
                instance, f"what became of a record that waited for epoch {epoch}", "it has not ended"
            )


def derivations(
    instance: ArchivedInstance, epoch: Epoch, call: TracedCall, begun: Epoch | None
) -> list[Derivation]:
    """What a call says of where its rows are from, in a repetition that began with an epoch. Without input sets it is
    what the call was given."""
    origin = instance.origin
    made_of = call.made_of
    if not made_of and call.outputs:
        inputs = tuple(RecordId(each.channel, each.position) for each in call.inputs)
        made_of = [MadeOf(0, len(call.outputs), inputs, ())]
    own = given_as(call.forms, len(call.outputs))
    return [
        Derivation(
            origin,
            epoch,
            call.form,
            OutputNumber(call.first + part.first),
            part.count,
            part.inputs,
            tuple([at - part.first for at in own[part.first : part.first + part.count]]),
            part.kept,
            begun if part.lacks else None,
        )
        for part in made_of
    ]


def lacking(instance: ArchivedInstance, what: str, why: str) -> StateError:
    """Something of an instance cannot be had."""
    return StateError(
        f"{what} of {instance} cannot be had: {why}",
        hint="`clonos archive verify` says of every epoch whether it can be repeated",
    )


def _by_origin(records: Iterable[RecordId]) -> list[tuple[Origin, set[RecordId]]]:
    found: dict[Origin, set[RecordId]] = {}
    for record in records:
        found.setdefault(channel_origin(record.channel), set()).add(record)
    return sorted(found.items())


def _by_epoch(instance: ArchivedInstance, numbers: Iterable[int]) -> Iterator[tuple[Epoch, list[int]]]:
    """In which epochs rows were made, and which."""
    left = sorted(numbers)
    while left:
        epoch = instance.made_in(OutputNumber(left[0]))
        if isinstance(epoch, Lacking):
            raise lacking(instance, f"row {left[0]}", epoch.why)
        last = instance.emitted(epoch)
        upto = len(left) if last is None else bisect_right(left, last)
        yield epoch, left[:upto]
        left = left[upto:]


def _came(instance: ArchivedInstance, epoch: Epoch, wanted: set[RecordId]) -> set[RecordId]:
    """Which of these records an instance was sent in an epoch."""
    episode = instance.episode(epoch)
    if isinstance(episode, Lacking):
        raise lacking(instance, f"what was sent in epoch {epoch} to an instance", episode.why)
    by_channel: dict[int, list[int]] = {}
    for record in sorted(wanted):
        by_channel.setdefault(record.channel, []).append(record.position)
    found: set[RecordId] = set()
    for raw in episode.blocks:
        block = parse_block(memoryview(raw))
        positions = by_channel.get(block.sender, [])
        if block.count and positions:
            numbers = numbers_of(block.numbers)
            near = positions[bisect_left(positions, numbers[0]) : bisect_right(positions, numbers[-1])]
            found.update(RecordId(block.sender, each) for each in {*near}.intersection(numbers))
    return found
