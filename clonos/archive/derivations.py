"""Derivations out of an archive: what went into which rows was recorded, or is found by repeating instances."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.recorded import recorded
from clonos.archive.tracing import RowIsMade, TracedCall, Watcher
from clonos.errors import StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.lineage import Derivation, given_as
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import Epoch, NodeId, Origin, OutputNumber, RecordId, channel_origin, epoch_after
from clonos.protocol.recovery.causal.determinant import Step
from clonos.wire.block import parse_block
from clonos_standby.cluster.spec import NodeSpec


class CallWatcher(Watcher):
    """Tells of the calls of epochs from `since` on."""

    keeps_state = False
    keeps_rows = False

    def __init__(self, tells: Callable[[Epoch, TracedCall], None], since: Epoch) -> None:
        super().__init__()
        self._tells = tells
        self._since = since
        self.epoch = since  # that is repeated

    def begins(self, epoch: Epoch, node: NodeSpec) -> None:
        """An epoch is about to be repeated."""
        self.epoch = epoch
        self.is_on = epoch >= self._since

    def ended(self, call: TracedCall) -> None:
        self._tells(self.epoch, call)


class _MakingWatcher(Watcher):
    """Looks at the steps that made rows of these `numbers`, in order, and ends the repetition behind the last."""

    keeps_state = False
    keeps_rows = False

    def __init__(self, numbers: list[int]) -> None:
        super().__init__()
        self._numbers = numbers
        self.found: list[TracedCall] = []

    def step_begins(self, step: Step) -> None:
        super().step_begins(step)
        at = bisect_left(self._numbers, self._next)
        if at == len(self._numbers):
            raise RowIsMade
        self.is_on = self._numbers[at] < self._next + step.outputs

    def ended(self, call: TracedCall) -> None:
        at = bisect_left(self._numbers, call.first)
        if at < len(self._numbers) and self._numbers[at] <= call.last:
            self.found.append(call)


class ArchivedDerivations:
    """Of a query (`protocol.archive.lineage.Derivations`). Each method raises StateError where something is lacking."""

    def __init__(self, query: ArchivedQuery) -> None:
        self._query = query

    def of_rows(self, origin: Origin, numbers: frozenset[int]) -> Iterator[Derivation]:
        instance = self._query.operator_instance(origin)
        for epoch, here in _by_epoch(instance, numbers):
            known = recorded(instance, epoch)
            found = list(_making(instance, epoch, here) if known is None else known.of_rows(here))
            made = {row.position for one in found for row in one.rows()}
            if lost := [number for number in here if number not in made]:
                raise StateError(f"epoch {epoch} of {instance} made no row with the number {lost[0]}")
            yield from found

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
                    yield from _given(reader, epoch, _came(reader, epoch, wanted))

    def _of_source(self, readers: list[ArchivedInstance], records: set[RecordId]) -> Iterator[Derivation]:
        left = set(records)
        for reader in readers:
            for epoch in sorted(reader.epochs):
                if left and reader.has_ended(epoch) and (here := _came(reader, epoch, left)):
                    left -= here
                    yield from _given(reader, epoch, here)
        if left:
            lost = min(left)
            raise StateError(
                f"no epoch in the archive that has ended was given position {lost.position} of "
                f"{self._query.source(channel_origin(lost.channel))}",
                hint="`clonos archive list` shows which epochs there are",
            )


def derivation(instance: ArchivedInstance, epoch: Epoch, call: TracedCall) -> Derivation:
    """What a call says of where its rows are from."""
    inputs = tuple(RecordId(each.channel, each.position) for each in call.inputs)
    count = len(call.outputs)
    return Derivation(
        instance.origin, epoch, call.form, call.first, count, inputs, given_as(call.forms, count)
    )


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


def _making(instance: ArchivedInstance, epoch: Epoch, numbers: list[int]) -> Iterator[Derivation]:
    """The calls that made rows of an epoch."""
    watcher = _MakingWatcher(numbers)
    with desk_for(instance, watcher) as desk:
        why = instance.repeated_to_row(OutputNumber(numbers[0]), epoch, desk)
    if why is not None:
        raise lacking(instance, f"epoch {epoch}", why.why)
    for call in watcher.found:
        yield derivation(instance, epoch, call)


def _given(instance: ArchivedInstance, epoch: Epoch, records: set[RecordId]) -> Iterator[Derivation]:
    """The calls that were given records, which came in an epoch, and gave rows."""
    left, waits = set(records), True
    while left and waits:
        if not instance.has_ended(epoch):
            raise lacking(
                instance, f"what became of a record that waited for epoch {epoch}", "it has not ended"
            )
        if (known := recorded(instance, epoch)) is not None:  # all that came in it has been run in it
            yield from known.of_records(left)
            return
        found: list[Derivation] = []

        def tells(at: Epoch, call: TracedCall, found: list[Derivation] = found) -> None:
            given = left.intersection(RecordId(each.channel, each.position) for each in call.inputs)
            left.difference_update(given)
            if given and call.outputs:
                found.append(derivation(instance, at, call))

        watcher = CallWatcher(tells, epoch)
        with desk_for(instance, watcher) as desk:
            for each in instance.repeated(epoch, desk, begins=watcher.begins):
                if isinstance(each, Lacking):
                    raise lacking(instance, f"epoch {epoch}", each.why)
            waits = desk.keeps_records_waiting
        yield from found
        epoch = epoch_after(epoch)
