"""Which rows of an operator had these values: what `clonos explain` is to be asked, where ids are not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from clonos.archive.condition import Condition, Wanted
from clonos.archive.desk import Desk
from clonos.archive.reading import ArchivedInstance
from clonos.archive.repeating import repeated_throughout
from clonos.archive.shown_row import ShownRow
from clonos.archive.tracing import TracedCall, Watcher
from clonos.errors import ConfigurationError
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.epoch_run import EpochRun, run_said
from clonos.protocol.ids import Epoch, OutputNumber, epoch_after, epoch_before
from clonos_standby.cluster.spec import NodeSpec


@dataclass(frozen=True, slots=True)
class FoundRow:
    """With its number among the rows of its instance."""

    number: OutputNumber
    epoch: Epoch
    row: ShownRow


@dataclass(frozen=True, slots=True)
class NotSearched:
    """Epochs of an instance that could not be looked at."""

    instance: ArchivedInstance
    run: EpochRun | None
    lacking: Lacking

    def said(self, why: str) -> str:
        """With a reason that may be shown."""
        if self.run is None:
            return f"{self.instance}: {why}"
        first, last = self.run
        are = "is" if first == last else "are"
        return f"{self.instance}: {run_said(first, last)} {are} not searched: {why}"


class NoSuchRows(Exception):
    """No row of the operator can have what is looked for: `error` says why."""

    def __init__(self, error: ConfigurationError) -> None:
        super().__init__(str(error))
        self.error = error


class Finder(Watcher):
    """Looks at every row from an epoch on. `tells` is given what is found."""

    keeps_state = False

    def __init__(
        self, conditions: Sequence[Condition], tells: Callable[[FoundRow], None], *, since: Epoch
    ) -> None:
        super().__init__()
        self._conditions = conditions
        self._wanted: list[tuple[Condition, Wanted]] = []
        self._tells = tells
        self._since = since
        self._node: NodeSpec | None = None
        self._epoch: Epoch
        self._desk: Desk

    def begins(self, desk: Desk, epoch: Epoch, node: NodeSpec) -> None:
        """An epoch is about to be repeated. Raises NoSuchRows, unless the program of an earlier one had such rows."""
        self._desk, self._epoch = desk, epoch
        self.is_on = epoch >= self._since
        if not self.is_on or node is self._node:
            return
        try:
            wanted = [(each, each.wanted_of(node)) for each in self._conditions]
        except ConfigurationError as error:
            if self._node is None:
                raise NoSuchRows(error) from None
            wanted = [(each, {}) for each in self._conditions]
        self._node, self._wanted = node, wanted

    def ended(self, call: TracedCall) -> None:
        for at, row in enumerate(self._desk.shown(call.outputs)):
            if all(condition.is_met_by(row, wanted) for condition, wanted in self._wanted):
                self._tells(FoundRow(OutputNumber(call.first + at), self._epoch, row))


def search(instance: ArchivedInstance, since: Epoch, upto: Epoch, finder: Finder) -> Iterator[NotSearched]:
    """Every epoch that can be repeated, from one up to another: what could not be searched. Raises NoSuchRows."""
    first: Epoch = since
    for found, _ in repeated_throughout(instance, upto, finder, since=since, begins=finder.begins):
        if isinstance(found, Episode):
            first = max(first, epoch_after(found.epoch))
            continue
        behind = instance.first_behind(first, upto)
        # Those that are not there, too: what made it impossible may be that one of them is missing.
        last = upto if behind is None else epoch_before(behind)
        yield NotSearched(instance, (first, last) if first <= last else None, found)
        first = first if behind is None else behind
