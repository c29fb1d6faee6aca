"""The calls that a row goes back to: which call made it, of which rows, which calls made those, and so on.

It is a graph: rows come from one call, and rows of one call go different ways. Each call is found once. It is looked
for level by level, with one repetition of an epoch of an instance for all rows of a level that were made in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from clonos.archive.derivations import ArchivedDerivations
from clonos.archive.desk import Desk
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.tracing import CallsTracer, TracedCall
from clonos.errors import ClonosError, StateError
from clonos.operators.kept_entries import keeps_entries
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.lineage import Derivation, Lost
from clonos.protocol.ids import Epoch, Origin, OutputNumber, RecordId, channel_origin
from clonos.protocol.recovery.causal.determinant import Step
from clonos_standby.cluster.spec import NodeSpec

_OF_STATE_ALONE: Final = ("timer", "end of the epoch")
"""Forms of calls that are given no record."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is explained: of each call so many `inputs`, operators up to `depth` away, and so many `calls`."""

    inputs: int = 10
    depth: int = 64
    calls: int = 100


@dataclass(frozen=True, slots=True, eq=False)
class FoundCall:
    """A call, with its `rows` as their readers got them."""

    instance: ArchivedInstance
    epoch: Epoch
    node: NodeSpec
    call: TracedCall
    step: Step
    rows: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    version: str

    @property
    def place(self) -> tuple[Origin, OutputNumber]:
        """Which one it is: no other call has made its first row."""
        return self.instance.origin, self.call.first

    @property
    def has_kept_inputs(self) -> bool:
        """Whether its rows may be of records that state had kept, each row of others."""
        form = self.call.form
        return form in _OF_STATE_ALONE or (
            form == "record" and keeps_entries(self.instance.operator_form(self.epoch))
        )

    def has_made(self, row: RecordId) -> bool:
        is_own = channel_origin(row.channel) == self.instance.origin
        return is_own and self.call.first <= row.position <= self.call.last


@dataclass(frozen=True, slots=True)
class GivenRecord:
    """A record that a call was given, or, `is_kept`, that state had kept for it."""

    record: RecordId
    row: Any
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class MadeRow:
    """A row, and what made it. `part` is the same of all rows of the call that are made of the same records."""

    call: FoundCall
    part: int
    inputs: list[GivenRecord]
    kept_before: Epoch | None = None
    lacking: Lacking | None = None  # what it is made of

    @property
    def place(self) -> tuple[Origin, OutputNumber, int]:
        """Which explanation it has."""
        return *self.call.place, self.part


@dataclass(frozen=True, slots=True)
class LostRow:
    """A row of which it cannot be had what made it."""

    instance: ArchivedInstance | None
    epoch: Epoch | None
    lacking: Lacking


@dataclass
class CallGraph:
    """See the module. `left_out` are rows that would be explained, but for the limit of calls."""

    query: ArchivedQuery
    limits: Limits
    rows: dict[RecordId, MadeRow | LostRow] = field(default_factory=dict)
    left_out: set[RecordId] = field(default_factory=set)
    _calls: dict[Origin, list[FoundCall]] = field(default_factory=dict)
    _explained: set[tuple[Origin, OutputNumber, int]] = field(default_factory=set)

    def follow(self, row: RecordId) -> None:
        """Back to the sources, as far as the limits allow."""
        level = [row]
        for _ in range(max(self.limits.depth, 1)):
            if not (level := self._explain(level)):
                return

    def made(self, row: RecordId) -> MadeRow | LostRow | None:
        """What made a row, as far as that has been found."""
        if (found := self.rows.get(row)) is not None:
            return found
        call = self._call_of(row)
        return None if call is None or call.has_kept_inputs else _of_call(call)

    def is_of_operator(self, row: RecordId) -> bool:
        return self.query.instance(channel_origin(row.channel)) is not None

    def _explain(self, rows: Iterable[RecordId]) -> list[RecordId]:
        """Rows of one level; those that they are made of, in turn."""
        level = list(dict.fromkeys(row for row in rows if row not in self.rows))
        if self._is_full:
            known = [row for row in level if self.made(row) is not None]
            self.left_out.update(set(level).difference(known))
            level = known
        self._find_calls([row for row in level if self._call_of(row) is None])
        made = self._made(level)
        found: list[RecordId] = []
        for row in level:
            one = self.rows.get(row) or made[row]
            if isinstance(one, MadeRow) and one.place not in self._explained:
                if self._is_full:
                    self.left_out.add(row)
                    continue
                self._explained.add(one.place)
                given = (each.record for each in one.inputs[: max(self.limits.inputs, 0)])
                found += filter(self.is_of_operator, given)
            self.rows[row] = one
        return found

    @property
    def _is_full(self) -> bool:
        return len(self._explained) >= max(self.limits.calls, 1)

    def _call_of(self, row: RecordId) -> FoundCall | None:
        calls = self._calls.get(channel_origin(row.channel), ())
        return next((call for call in calls if call.has_made(row)), None)

    # ----------------------------------------------------------------- calls

    def _find_calls(self, rows: list[RecordId]) -> None:
        """By instance and epoch; rows without one are lost."""
        placed: list[tuple[RecordId, tuple[ArchivedInstance, Epoch]]] = []
        for row in rows:
            origin = channel_origin(row.channel)
            if (instance := self.query.instance(origin)) is None:
                lacking = Lacking(f"the query has no operator's instance {origin}")
                self.rows[row] = LostRow(None, None, lacking)
                continue
            epoch = instance.rows.made_in(OutputNumber(row.position))
            if isinstance(epoch, Lacking):
                self.rows[row] = LostRow(instance, None, epoch)
                continue
            placed.append((row, (instance, epoch)))
        for (instance, epoch), own in _grouped(placed, lambda place: (place[0].origin, place[1])):
            lost = self._find_in(instance, epoch, sorted(row.position for row in own))
            nothing = Lacking(f"nothing of epoch {epoch} made a row with this number")
            for row in own:
                if self._call_of(row) is None:
                    self.rows[row] = LostRow(instance, epoch, lost.get(row.position, nothing))

    def _find_in(self, instance: ArchivedInstance, epoch: Epoch, numbers: list[int]) -> dict[int, Lacking]:
        """The calls that made these rows of an epoch; why there are none, of those of which that is so. Where the epoch
        cannot be repeated as far as the last of them, others may be behind a state inside it."""
        lost: dict[int, Lacking] = {}
        calls = self._calls.setdefault(instance.origin, [])
        while numbers:
            found, why = _calls(instance, epoch, numbers)
            calls += found
            if why is None:
                break
            made = [(each.call.first, each.call.last) for each in found]
            numbers = [each for each in numbers if not any(first <= each <= last for first, last in made)]
            lost |= dict.fromkeys(numbers, why)
            numbers = numbers if found else numbers[(len(numbers) + 1) // 2 :]
        return lost

    # ------------------------------------------------------------------ rows

    def _made(self, rows: list[RecordId]) -> dict[RecordId, MadeRow]:
        """Of rows whose calls have been found, what they are made of."""
        made: dict[RecordId, MadeRow] = {}
        of_kept: list[tuple[RecordId, FoundCall]] = []
        for row in rows:
            if (call := self._call_of(row)) is None:
                continue
            if call.has_kept_inputs:
                of_kept.append((row, call))
            else:
                made[row] = _of_call(call)
        for call, own in _grouped(of_kept, lambda call: (call.instance.origin, call.epoch)):
            derivations = _derivations(self.query, call.instance.origin, sorted(own))
            for row in own:
                of_row = self._call_of(row)
                assert of_row is not None
                made[row] = _of_kept(of_row, row, derivations[row])
        return made


def _grouped(
    placed: Sequence[tuple[RecordId, T]], group: Callable[[T], object]
) -> list[tuple[T, list[RecordId]]]:
    """Rows with the same place, in the order of their first ones."""
    groups: dict[object, tuple[T, list[RecordId]]] = {}
    for row, place in placed:
        groups.setdefault(group(place), (place, []))[1].append(row)
    return list(groups.values())


def _calls(
    instance: ArchivedInstance, epoch: Epoch, numbers: list[int]
) -> tuple[list[FoundCall], Lacking | None]:
    """Those that made rows with these numbers, in one repetition; and why there are not all of them, where something
    cannot be repeated."""
    tracer = CallsTracer(numbers)
    with desk_for(instance, tracer) as desk:
        try:
            lacking = instance.repeated_to_row(tracer.first, epoch, desk)
        except ClonosError as error:
            lacking = Lacking.raised(error)
        if lacking is None:
            tracer.step_ended()
        return _found(instance, epoch, desk, tracer), lacking


def _found(instance: ArchivedInstance, epoch: Epoch, desk: Desk, tracer: CallsTracer) -> list[FoundCall]:
    if not tracer.found:
        return []
    node, version = instance.program_of(epoch), instance.version(epoch)
    found: list[FoundCall] = []
    for step, call in tracer.found:
        rows = [row.columns for row in desk.shown(call.outputs)]
        processes = instance.processes(epoch, step)
        found.append(FoundCall(instance, epoch, node, call, step, rows, processes, version))
    return found


def _of_call(call: FoundCall) -> MadeRow:
    return MadeRow(call, 0, _given(call.call))


def _of_kept(call: FoundCall, row: RecordId, made: Derivation | Lacking) -> MadeRow:
    if isinstance(made, Lacking):
        return MadeRow(call, row.position - call.call.first, [], lacking=_said_of(row, made))
    inputs = _given(call.call)
    had = frozenset(each.record for each in inputs)
    for part in made.kept:
        inputs += [GivenRecord(*each, is_kept=True) for each in part.with_rows() if each[0] not in had]
    return MadeRow(call, made.first - call.call.first, inputs, made.kept_before)


def _given(call: TracedCall) -> list[GivenRecord]:
    return [GivenRecord(RecordId(each.channel, each.position), each.row) for each in call.inputs]


def _derivations(
    query: ArchivedQuery, origin: Origin, rows: list[RecordId]
) -> dict[RecordId, Derivation | Lacking]:
    """Of rows of one epoch, in order: what they are made of, with what the records said; why not, where that cannot be
    had. Those in front of what cannot be repeated are asked about alone then."""
    made = _derivations_at_once(query, origin, rows)
    if isinstance(made, dict):
        return {**made}
    if len(rows) == 1:
        return {rows[0]: made}
    middle = len(rows) // 2
    found = _derivations(query, origin, rows[:middle])
    if isinstance(last := found[rows[middle - 1]], Lacking):
        return found | dict.fromkeys(rows[middle:], last)
    return found | _derivations(query, origin, rows[middle:])


def _derivations_at_once(
    query: ArchivedQuery, origin: Origin, rows: list[RecordId]
) -> dict[RecordId, Derivation] | Lacking:
    found: dict[RecordId, Derivation] = {}
    numbers = frozenset(row.position for row in rows)
    try:
        for each in ArchivedDerivations(query, keeps_rows=True).of_rows(origin, numbers):
            if isinstance(each, Lost):
                return Lacking(each.why)
            found |= {row: each for row in each.rows() if row.position in numbers}
    except StateError as error:
        return Lacking(error.message)
    except ClonosError as error:
        return Lacking.raised(error)
    return found


def _said_of(row: RecordId, made: Lacking) -> Lacking:
    """With the row that it is said of, but for what the function raised."""
    if made.has_raised:
        return made
    origin = channel_origin(row.channel)
    name = f"{origin.node}-{origin.instance}-{row.position}"
    return Lacking(f"what the row {name} is made of cannot be had: {made.why}")
