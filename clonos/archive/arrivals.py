"""In which epochs rows were made, and to which instances records came, as far as an archive says it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.errors import StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.lineage import Lost
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import Epoch, Origin, OutputNumber, RecordId, channel_origin
from clonos.wire.block import parse_block


class Arrivals:
    """Where records came to: by reader and epoch which ones, and of which it is not known."""

    def __init__(
        self, query: ArchivedQuery, readers: list[ArchivedInstance], records: Iterable[RecordId]
    ) -> None:
        self._query = query
        self.readers = readers
        self.at: dict[Origin, dict[Epoch, set[RecordId]]] = {each.origin: {} for each in readers}
        self.lost: list[Lost] = []
        for origin, group in _by_origin(records):
            sender = query.instance(origin)
            if sender is None:
                self._look_everywhere(group)
                continue
            for epoch, numbers in rows_by_epoch(sender, (record.position for record in group)):
                sent = {RecordId(origin.channel, number) for number in numbers}
                if isinstance(epoch, Lacking):
                    self._look_everywhere(sent)
                else:
                    self._look(epoch, sent)

    def _look(self, epoch: Epoch, sent: set[RecordId]) -> None:
        """Each goes to one of the readers, if to any."""
        left, why = set(sent), ""
        for reader in self.readers:
            try:
                left -= self._take(reader, epoch, sent)
            except StateError as error:
                why = why or error.message
        if left and why:
            self.lost.append(Lost(tuple(sorted(left)), why))

    def _look_everywhere(self, records: set[RecordId]) -> None:
        """It is not known in which epoch they were sent."""
        left, why = set(records), ""
        for reader in self.readers:
            for epoch in sorted(reader.epochs):
                if left and reader.has_ended(epoch):
                    try:
                        left -= self._take(reader, epoch, left)
                    except StateError as error:
                        why = why or f". {error.message}"
        if left:
            first = min(left)
            sender = self._query.instance(channel_origin(first.channel))
            said = f"position {first.position} of {self._query.source(channel_origin(first.channel))}"
            if sender is not None:
                said = f"row {first.position} of {sender}"
            what = f"no epoch in the archive that has ended was given {said}"
            self.lost.append(Lost(tuple(sorted(left)), what + why))

    def _take(self, reader: ArchivedInstance, epoch: Epoch, wanted: set[RecordId]) -> set[RecordId]:
        found = _came(reader, epoch, wanted)
        if found:
            self.at[reader.origin].setdefault(epoch, set()).update(found)
        return found


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


def rows_by_epoch(
    instance: ArchivedInstance, numbers: Iterable[int]
) -> Iterator[tuple[Epoch | Lacking, list[int]]]:
    """In which epochs rows were made, or why that is not known, and which rows."""
    left = sorted(numbers)
    while left:
        epoch, last = instance.rows.placed(OutputNumber(left[0]))
        upto = bisect_right(left, last)
        yield epoch, left[:upto]
        left = left[upto:]


def _came(instance: ArchivedInstance, epoch: Epoch, wanted: set[RecordId]) -> set[RecordId]:
    """Which of these records an instance was sent in an epoch."""
    episode = instance.episode(epoch)
    if isinstance(episode, Lacking):
        raise lacking(instance, f"the input in epoch {epoch}", episode.why)
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
