"""Derivations out of an archive: what went into which rows was recorded, or is found by repeating instances."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from clonos.archive.arrivals import Arrivals, lacking, rows_by_epoch
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.recorded import recorded, recorded_from
from clonos.archive.tracing import RowIsMade, TracedCall, Watcher
from clonos.errors import DivergenceError, StateError
from clonos.operators.kept_entries import keeps_entries, keeps_nothing
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.input_sets import InputSets, MadeOf
from clonos.protocol.archive.lineage import Derivation, Lost, any_between, given_as
from clonos.protocol.archive.step_lineage import CallForm
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId
from clonos.protocol.recovery.causal.determinant import Step
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
    """Of a query (`protocol.archive.lineage.Derivations`).

    `through_state`: also over what a user's function keeps in its state, which is an upper bound. `keeps_rows`: with
    what the records said that state had kept."""

    def __init__(
        self, query: ArchivedQuery, *, through_state: bool = False, keeps_rows: bool = False
    ) -> None:
        self._query = query
        self._through_state = through_state
        self._keeps_rows = keeps_rows

    def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation | Lost]:
        instance = self._query.operator_instance(origin)
        for epoch, here in rows_by_epoch(instance, numbers):
            rows = tuple(RecordId(origin.channel, number) for number in here)
            if isinstance(epoch, Lacking):
                yield Lost(rows, epoch.why)
                continue
            try:
                yield from self._making(instance, epoch, here)
            except StateError as error:
                yield Lost(rows, error.message)

    def of_records(self, node: NodeId, records: frozenset[RecordId]) -> Iterator[Derivation | Lost]:
        """A row of an operator that a reader was not sent, as one of another output, has gone into nothing. A record of
        a source has to be found."""
        arrived = Arrivals(self._query, self._query.instances_of(node), records)
        yield from arrived.lost
        for reader in arrived.readers:
            if came := arrived.at[reader.origin]:
                yield from self._given(reader, came)

    def _making(self, instance: ArchivedInstance, epoch: Epoch, numbers: list[int]) -> list[Derivation]:
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
        return wanted

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
        self, instance: ArchivedInstance, came: Mapping[Epoch, set[RecordId]]
    ) -> Iterator[Derivation | Lost]:
        """The calls that gave rows of records, by the epochs in which they came, each once: as long as any of them is
        kept, or waits, the instance is repeated; with the epoch in which the next ones came it begins again. Behind
        one that cannot be repeated it is not known what became of those that were kept."""
        rest = sorted(came)
        while rest:
            if not self._through_state and (known := recorded_from(instance, rest[0])) is not None:
                for epoch in rest:
                    yield from known[epoch].of_records(came[epoch])  # which is all, where nothing is kept
                return
            begun, reached = rest[0], None
            try:
                for epoch, found in self._followed(instance, begun, came):
                    reached = epoch
                    yield from found
            except StateError as error:
                last = next((epoch for epoch in rest if reached is None or epoch > reached), rest[-1])
                since = last if self._keeps_nothing(instance, reached) else begun
                lost = (records for epoch, records in came.items() if since <= epoch <= last)
                yield Lost(tuple(sorted(chain(*lost))), error.message)
                reached = last
            assert reached is not None
            rest = [epoch for epoch in rest if epoch > reached]

    def _keeps_nothing(self, instance: ArchivedInstance, repeated: Epoch | None) -> bool:
        """As far as it is known of an epoch that was repeated: rows are of what their call was given."""
        return repeated is None or (
            not self._through_state and keeps_nothing(instance.operator_form(repeated))
        )

    def _followed(
        self, instance: ArchivedInstance, begin: Epoch, came: Mapping[Epoch, set[RecordId]]
    ) -> Iterator[tuple[Epoch, list[Derivation]]]:
        """Epoch by epoch from one on, until nothing of the records is left."""
        records = frozenset(chain(*(came[epoch] for epoch in came if epoch >= begin)))
        given, left, found = set[RecordId](), set[RecordId](), list[Derivation]()

        def tells(call: TracedCall, made: list[Derivation]) -> None:
            given.update(records.intersection(RecordId(each.channel, each.position) for each in call.inputs))
            for one in made:
                kept = tuple(part for each in one.kept if (part := each.followed()) is not None)
                if kept or not records.isdisjoint(one.inputs):
                    found.append(replace(one, kept=kept, kept_before=None))

        last = instance.last_ended
        assert last is not None, "records came in an epoch that has ended"
        sets = InputSets(through_state=self._through_state, is_followed=records.__contains__)
        watcher = CallWatcher(instance, tells, begin, sets)
        with desk_for(instance, watcher) as desk:
            for each in instance.repeated(last, desk, since=begin, begins=watcher.begins):
                if isinstance(each, Lacking):
                    raise lacking(instance, f"what became of records of epoch {begin}", each.why)
                if each.epoch >= begin:
                    left = (left | came.get(each.epoch, set())) - given
                    given.clear()
                    yield each.epoch, [*found]
                    found.clear()
                    if not left and not sets.still_follows:
                        return
        if left:
            raise lacking(
                instance, f"what became of a record that waited for epoch {last + 1}", "it has not ended"
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
