"""Why a row says what it says: the call that made it, with its input, state, clock, draws and answers, and the same of
each input record, back to the sources.

Each operator's part is a repetition of its own, of the epoch in which the row was made, from the newest archived state
before it (`desk`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from clonos.archive.derivations import ArchivedDerivations
from clonos.archive.desk import Desk
from clonos.archive.given_key import KeyForm
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.shown_value import record_shown
from clonos.archive.tracing import Asked, TracedCall, Tracer
from clonos.errors import ClonosError, ConfigurationError, StateError
from clonos.operators.kept_entries import keeps_entries
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.lineage import Derivation, Lost
from clonos.protocol.ids import (
    NODE_MAX,
    Epoch,
    InstanceId,
    NodeId,
    Origin,
    OutputNumber,
    RecordId,
    channel_origin,
)
from clonos.values.readable import key_said, moment

_OF_STATE_ALONE: Final = ("timer", "end of the epoch")
"""Forms of calls that are given no record."""
_ID: Final = re.compile(
    r"(?:(?P<query>[0-9a-f]{32})/)?(?:\d+-\d+/)?(?P<node>\d+)-(?P<instance>\d+)-(?P<number>\d+)"
)


@dataclass(frozen=True, slots=True)
class RowId:
    """Which instance has made a row, and its number among those."""

    origin: Origin
    number: OutputNumber

    @classmethod
    def parse(cls, text: str, query: str) -> RowId:
        """As sinks show it. Raises ConfigurationError."""
        found = _ID.fullmatch(text.strip())
        if found is None:
            raise ConfigurationError(
                f"{text!r} is no id of a row",
                hint="It is what sinks call clonos_id: <query>/<node>-<instance>-<position>",
            )
        if found["query"] not in (None, query):
            raise ConfigurationError(
                f"the row is of query {found['query']}, and the checkpoint of query {query}",
                hint="Name the checkpoint of the query that has shown it",
            )
        origin = Origin.of(NodeId(int(found["node"])), InstanceId(int(found["instance"])))
        return cls(origin, OutputNumber(int(found["number"])))

    @staticmethod
    def is_meant(text: str) -> bool:
        """Whether it is written as an id of a row. A date is, too, but for its year, which is no node's number."""
        found = _ID.fullmatch(text.strip())
        return found is not None and 0 < int(found["node"]) <= NODE_MAX

    @classmethod
    def of(cls, record: RecordId) -> RowId:
        return cls(channel_origin(record.channel), OutputNumber(record.position))

    @property
    def record(self) -> RecordId:
        """As its readers know it."""
        return RecordId(self.origin.channel, self.number)

    def __str__(self) -> str:
        return f"{self.origin.node}-{self.origin.instance}-{self.number}"


def explain(query: ArchivedQuery, row: RowId, *, inputs: int = 10, depth: int = 64) -> dict[str, Any]:
    """The row as a document; what cannot be had is said as `lacking`. Of each call at most so many `inputs` are
    explained themselves, and operators up to `depth` away."""
    instance = query.instance(row.origin)
    if instance is None:
        return {"id": str(row), "lacking": f"the query has no operator's instance {row.origin}"}
    said: dict[str, Any] = {
        "id": str(row),
        "operator": instance.operator,
        "instance": instance.origin.instance,
    }
    epoch = instance.made_in(row.number)
    if isinstance(epoch, Lacking):
        return {**said, "lacking": epoch.why}
    said["epoch"] = epoch
    tracer = Tracer(row.number)
    lacking, shown = _repeat(instance, epoch, tracer)
    if lacking is not None or tracer.found is None:
        nothing = Lacking(f"nothing of epoch {epoch} made a row with this number")
        return {**said, **_said(lacking or nothing)}
    call, node = tracer.found, instance.program_of(epoch)
    said |= {
        "row": shown,
        "processes": [] if tracer.step is None else instance.processes(epoch, tracer.step),
        "version": instance.version(epoch),
        **_call(call, tracer, KeyForm.of_program(node)),
    }
    records = [(RecordId(each.channel, each.position), each.row, False) for each in call.inputs]
    if call.form in _OF_STATE_ALONE or (
        call.form == "record" and keeps_entries(instance.operator_form(epoch))
    ):
        made = _derivation(query, row)
        if isinstance(made, Lacking):
            return {**said, **_said(made)}
        had = frozenset(record for record, _, _ in records)
        for part in made.kept:
            records += [(*each, True) for each in part.with_rows() if each[0] not in had]
        if made.kept_before is not None:
            said["kept_before"] = made.kept_before
    said["inputs"] = [
        {
            "row": record_shown(node, channel_origin(record.channel).node, given),
            **({"kept": True} if is_kept else {}),
        }
        | _made_by(query, record, inputs=inputs if number < inputs else 0, depth=depth)
        for number, (record, given, is_kept) in enumerate(records)
    ]
    return said


def _said(lacking: Lacking) -> dict[str, Any]:
    return {"lacking": lacking.why, **({"has_raised": True} if lacking.has_raised else {})}


def _derivation(query: ArchivedQuery, row: RowId) -> Derivation | Lacking:
    """What a row is made of, with what the records said; why not, where that cannot be had."""
    try:
        (found,) = ArchivedDerivations(query, keeps_rows=True).of_rows(row.origin, frozenset([row.number]))
    except StateError as error:
        return Lacking(f"what the row {row} is made of cannot be had: {error.message}")
    except ClonosError as error:
        return Lacking.raised(error)
    if isinstance(found, Lost):
        return Lacking(f"what the row {row} is made of cannot be had: {found.why}")
    return found


def _made_by(query: ArchivedQuery, record: RecordId, *, inputs: int, depth: int) -> dict[str, Any]:
    """Where a record of a call, or one that state had kept for it, is from; explained itself where there are to be
    `inputs`."""
    origin = channel_origin(record.channel)
    if query.instance(origin) is None:
        return {"source": query.source(origin), "position": record.position}
    made = RowId.of(record)
    one: dict[str, Any] = {"id": str(made)}
    if inputs and depth > 1:
        one["made_by"] = explain(query, made, inputs=inputs, depth=depth - 1)
    return one


def made_by(query: ArchivedQuery, row: RowId) -> tuple[ArchivedInstance, Epoch, TracedCall]:
    """Which call has made a row. Raises StateError where that cannot be had."""
    instance, epoch = query.place_of(row.origin, row.number)
    tracer = Tracer(row.number)
    lacking, _ = _repeat(instance, epoch, tracer)
    if lacking is not None or tracer.found is None:
        why = "no row has this number" if lacking is None else lacking.why
        raise StateError(f"what made the row {row} cannot be repeated: {why}")
    return instance, epoch, tracer.found


def _repeat(
    instance: ArchivedInstance, epoch: Epoch, tracer: Tracer
) -> tuple[Lacking | None, dict[str, Any]]:
    """Up to the row: why it is not made, or the row as its readers got it; neither where nothing made it."""
    with desk_for(instance, tracer) as desk:
        try:
            if (lacking := instance.repeated_to_row(tracer.number, epoch, desk)) is not None:
                return lacking, {}
        except ClonosError as error:
            return Lacking.raised(error), {}
        return None, _shown(desk, tracer)


def _shown(desk: Desk, tracer: Tracer) -> dict[str, Any]:
    call = tracer.found
    if call is None:
        return {}
    return desk.shown(call.outputs)[tracer.number - call.first].columns


def _call(call: TracedCall, tracer: Tracer, form: KeyForm) -> dict[str, Any]:
    step = tracer.step
    said: dict[str, Any] = {"made_by_a": call.form, "keys": [form.shown(key) for key in call.keys]}
    if call.form == "record":
        said["rows_of_the_call"] = len(call.outputs)
    if call.timers:
        said["timers"] = [
            {"name": name, "due": moment(due), "time": "event" if event else "processing"}
            for due, name, event in call.timers
        ]
    if step is not None and step.fired_at:
        said["fired_at"] = moment(step.fired_at)
    if call.watermark is not None:
        said["watermark"] = moment(call.watermark)
    said["state"] = [
        {"key": _state_key(form, key_said(at)), "before": call.before.get(at), "after": call.after.get(at)}
        for at in sorted(call.before.keys() | call.after.keys())
    ]
    said["asked"] = [_asked(one) for one in call.asked]
    return said


def _state_key(form: KeyForm, key: Any) -> Any:
    """Text, where it is no key of the operator's."""
    return tuple(form.shown(key)) if isinstance(key, tuple) else key


def _asked(one: Asked) -> dict[str, Any]:
    said: dict[str, Any] = {"kind": one.kind, "what": one.what}
    if one.took is not None:
        said["took_us"] = one.took
    if isinstance(one.given, Exception):
        return {**said, "raised": f"{type(one.given).__name__}: {one.given}"}
    if one.kind in ("clock", "timer"):
        return {**said, "at": moment(one.given)}
    return said if one.is_under_way else {**said, "given": one.given}
