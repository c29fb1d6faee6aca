"""Why a row says what it says: the call that made it, with its input, state, clock, draws and answers, and the same of
each input record, back to the sources.

Each operator's part is a repetition of its own, of the epoch in which rows were made, from the newest archived state
before them (`desk`). What is found is a graph (`call_graph`), and the document says each call of it once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from clonos.archive.call_graph import CallGraph, FoundCall, GivenRecord, Limits, LostRow, MadeRow
from clonos.archive.given_key import KeyForm
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.shown_value import record_shown
from clonos.archive.tracing import Asked, TracedCall, Tracer
from clonos.errors import ClonosError, ConfigurationError, StateError
from clonos.protocol.archive.episode import Lacking
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


def explain(
    query: ArchivedQuery, row: RowId, *, inputs: int = 10, depth: int = 64, calls: int = 100
) -> dict[str, Any]:
    """The row as a document; what cannot be had is said as `lacking`. Of each call at most so many `inputs` are
    explained themselves, operators up to `depth` away, and so many `calls` in all: nearer ones before those behind.

    A call is in it once. Where a row of it comes again, `explained_above` is the row with which it is explained."""
    graph = CallGraph(query, Limits(inputs, depth, calls))
    graph.follow(row.record)
    said = _Document(graph).of(row.record)
    if graph.left_out:
        said["not_explained"] = {"rows": len(graph.left_out), "calls": calls}
    return said


class _Document:
    """What is found, as it is said: each explanation where its row comes first."""

    def __init__(self, graph: CallGraph) -> None:
        self._graph = graph
        self._rows: dict[object, str] = {}  # with which one there is an explanation
        self._calls: dict[object, str] = {}

    def of(self, record: RecordId) -> dict[str, Any]:
        """A row that has been followed."""
        row, made = str(RowId.of(record)), self._graph.rows[record]
        self._rows[_place(record, made)] = row
        if isinstance(made, LostRow):
            return {"id": row, **_of_lost(made)}
        call = made.call
        said: dict[str, Any] = {
            "id": row,
            "operator": call.instance.operator,
            "instance": call.instance.origin.instance,
            "epoch": call.epoch,
            "row": call.rows[record.position - call.call.first],
        }
        above = self._calls.setdefault(call.place, row)
        said |= _what_it_did(call) if above == row else {"explained_above": above}
        if made.lacking is not None:
            return {**said, **_said(made.lacking)}
        if made.kept_before is not None:
            said["kept_before"] = made.kept_before
        said["inputs"] = [self._input(call, number, each) for number, each in enumerate(made.inputs)]
        return said

    def _input(self, call: FoundCall, number: int, given: GivenRecord) -> dict[str, Any]:
        """A record of a call, or one that state had kept for it, and where it is from."""
        record, graph = given.record, self._graph
        origin = channel_origin(record.channel)
        said: dict[str, Any] = {"row": record_shown(call.node, origin.node, given.row)}
        if given.is_kept:
            said["kept"] = True
        if not graph.is_of_operator(record):
            return {**said, "source": graph.query.source(origin), "position": record.position}
        said["id"] = str(RowId.of(record))
        made = graph.made(record)
        if made is not None and (above := self._rows.get(_place(record, made))) is not None:
            said["explained_above"] = above
        elif number < graph.limits.inputs and record in graph.rows:
            said["made_by"] = self.of(record)
        return said


def _place(record: RecordId, made: MadeRow | LostRow) -> object:
    """Of the explanation: rows that are lost have each their own."""
    return made.place if isinstance(made, MadeRow) else record


def _of_lost(lost: LostRow) -> dict[str, Any]:
    instance, epoch = lost.instance, lost.epoch
    place = {} if instance is None else {"operator": instance.operator, "instance": instance.origin.instance}
    return {**place, **({} if epoch is None else {"epoch": epoch}), **_said(lost.lacking)}


def _said(lacking: Lacking) -> dict[str, Any]:
    return {"lacking": lacking.why, **({"has_raised": True} if lacking.has_raised else {})}


def made_by(query: ArchivedQuery, row: RowId) -> tuple[ArchivedInstance, Epoch, TracedCall]:
    """Which call has made a row. Raises StateError where that cannot be had."""
    instance, epoch = query.place_of(row.origin, row.number)
    tracer = Tracer(row.number)
    lacking = _repeat(instance, epoch, tracer)
    if lacking is not None or tracer.found is None:
        why = "no row has this number" if lacking is None else lacking.why
        raise StateError(f"what made the row {row} cannot be repeated: {why}")
    return instance, epoch, tracer.found


def _repeat(instance: ArchivedInstance, epoch: Epoch, tracer: Tracer) -> Lacking | None:
    """Up to the row: why it is not made."""
    with desk_for(instance, tracer) as desk:
        try:
            return instance.repeated_to_row(tracer.number, epoch, desk)
        except ClonosError as error:
            return Lacking.raised(error)


def _what_it_did(found: FoundCall) -> dict[str, Any]:
    """What a call was given but records, and what it asked for."""
    call, step, form = found.call, found.step, KeyForm.of_program(found.node)
    said: dict[str, Any] = {
        "processes": found.processes,
        "version": found.version,
        "made_by_a": call.form,
        "keys": [form.shown(key) for key in call.keys],
    }
    if call.form == "record":
        said["rows_of_the_call"] = len(call.outputs)
    if call.timers:
        said["timers"] = [
            {"name": name, "due": moment(due), "time": "event" if event else "processing"}
            for due, name, event in call.timers
        ]
    if step.fired_at:
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
