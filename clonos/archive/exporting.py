"""A call is taken out of an archive, so that it can be tried again in tests (`archive.trial`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from clonos.archive.desk import Desk
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.recorded_answers import reading_of
from clonos.archive.tracing import InputRecord, Row, TracedCall, Tracer
from clonos.archive.trial import Timer, answer_of, rows_of
from clonos.errors import ConfigurationError, StateError
from clonos.operators.function_code import has_function
from clonos.operators.named_object import name_of
from clonos.operators.process import OfBoth
from clonos.operators.rows import RowEncoder
from clonos.protocol.archive.episode import Episode
from clonos.protocol.ids import Epoch, OutputNumber, channel_origin
from clonos.protocol.recovery.causal.determinant import Step
from clonos.storage.one_row import row_stream
from clonos.storage.recorded_calls import RecordedCall
from clonos_standby.cluster.spec import NodeSpec


class _Recorder(Tracer):
    """Looks for the call that made a row: with which generator it began and ended, and which rows the function's own
    operator gave, before expressions behind it make others of them."""

    def __init__(self, number: OutputNumber) -> None:
        super().__init__(number)
        self.drawn: Any = None
        self.drawn_after: Any = None
        self.given: list[Row] = []
        self.reading: int | None = None  # of the clock, in the last step
        self.node: NodeSpec
        self._desk: Desk
        self._drawn: Any = None
        self._given: list[Row] = []

    def step_begins(self, step: Step) -> None:
        super().step_begins(step)
        self.reading = reading_of(step)

    def begins(self, desk: Desk, node: NodeSpec) -> None:
        """An epoch is about to be repeated."""
        self._desk, self.node = desk, node

    def begin(self, form: str) -> TracedCall:
        self._drawn = self._desk.services.random.getstate()
        return super().begin(form)

    def runs(self, call: TracedCall, operator: Any, run: Callable[[], list[Row]]) -> list[Row]:
        inner = has_function(operator)
        if inner is None:
            return run()
        bundle = inner.bundle

        def watched(keys: list[Row], rows: list[Row]) -> list[Row]:
            self._given = bundle(keys, rows)
            return self._given

        inner.bundle = watched
        try:
            return run()
        finally:
            del inner.bundle

    def ended(self, call: TracedCall) -> None:
        super().ended(call)
        if self.found is call:
            self.drawn, self.drawn_after = self._drawn, self._desk.services.random.getstate()
            self.given = self._given


def recorded_call(query: ArchivedQuery, row: RowId, *, function: str = "") -> RecordedCall:
    """The call that made a row. `function` is its name, where another one is to be tried than it has. Raises
    StateError where it cannot be had, ConfigurationError where its function has no name."""
    instance, epoch = query.place_of(row.origin, row.number)
    recorder = _Recorder(row.number)
    _repeat(instance, epoch, recorder, row)
    episode = instance.episode(epoch)
    found = recorder.found
    assert found is not None and isinstance(episode, Episode)
    if found.form != "record":
        raise StateError(
            f"row {row} was made by a call for {_said(found)}, and what is tried again is a call for one record",
            hint="`clonos explain` shows what it was made of",
        )
    ((given,), (key,)) = found.inputs, found.keys
    function = function or name_of(_function(recorder.node, given))
    if not function:
        raise ConfigurationError(
            f"the function of {instance.operator!r} has no name by which a test could import it",
            hint="Put it into a module, and name it with --function module:name",
        )
    call = _call(query, row, episode, recorder, key, given)
    return replace(call, function=function, outputs=rows_of(call, recorder.given))


def _repeat(instance: ArchivedInstance, epoch: Epoch, recorder: _Recorder, row: RowId) -> None:
    with desk_for(instance, recorder) as desk:
        lacking = instance.repeated_to_row(
            row.number, epoch, desk, begins=lambda _, node: recorder.begins(desk, node)
        )
    if lacking is not None:
        raise StateError(f"what made the row {row} cannot be repeated: {lacking.why}")
    if recorder.found is None:
        raise StateError(f"what made the row {row} cannot be repeated: no row has this number")


def _said(call: TracedCall) -> str:
    return f"{len(call.inputs)} records" if call.form == "bundle" else f"a {call.form}"


def _function(node: NodeSpec, given: InputRecord) -> Any:
    """Of two, that of the record's input."""
    assert node.operator is not None
    inner = has_function(node.operator())
    if inner is None:
        raise StateError(f"operator {node.name!r} has no function")
    if isinstance(inner._fn, OfBoth):
        return inner._fn._right if _is_right(node, given) else inner._fn._left
    return inner._fn


def _is_right(node: NodeSpec, given: InputRecord) -> bool:
    return node.right is not None and channel_origin(given.channel).node in node.right.upstream


def _call(
    query: ArchivedQuery, row: RowId, episode: Episode, recorder: _Recorder, key: Any, given: InputRecord
) -> RecordedCall:
    node, found = recorder.node, recorder.found
    assert found is not None and node.operator is not None and node.output is not None
    schema = node.schema_from(channel_origin(given.channel).node)
    asked = {(one.kind, one.what) for one in found.asked}
    timers: list[Timer] = [
        (is_set, timer[0], timer[2], event)
        for is_set, timer, event in (one.identity for one in found.asked if one.kind == "timer")
    ]
    return RecordedCall(
        query=query.id,
        row=str(row),
        epoch=episode.epoch,
        operator=node.name,
        operator_version=node.versions.at(episode.epoch),
        form=node.operator().form,
        function="",
        zone=node.zone,
        intercept=episode.intercept,
        record=row_stream(RowEncoder(schema, node.zone, node.name).batch([given.row])),
        output=node.output.serialize().to_pybytes(),
        side_outputs={name: each.serialize().to_pybytes() for name, each in node.side_outputs.items()},
        key=tuple(key),
        before=found.before,
        after=found.after,
        watermark=found.watermark,
        random=recorder.drawn,
        random_after=recorder.drawn_after,
        clock=recorder.reading if ("clock", "of the bundle") in asked else None,
        instants=[one.given for one in found.asked if (one.kind, one.what) == ("clock", "exact")],
        answers=[answer_of(one) for one in found.asked if one.kind in ("call", "effect")],
        timers=timers,
    )
