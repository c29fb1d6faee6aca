"""The command `clonos lineage`: which records a row was made of, or which rows a record went into, across operators."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from clonos.archive.derivations import ArchivedDerivations
from clonos.archive.explain import RowId
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ConfigurationError, StateError
from clonos.protocol.archive.lineage import Derivation, Lost, backward, forward, leads_to
from clonos.protocol.ids import NodeId, RecordId, channel_origin
from clonos.protocol.topology import NodeKind

_SHOWN = 20
"""Records of one call, in text; JSON has all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos lineage`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument(
        "record",
        help="the row's id, as its sink shows it (clonos_id), or, with --forward, that of a record of a source, as "
        "clonos explain and clonos lineage show it",
    )
    parser.add_argument(
        "--forward",
        action="store_true",
        help="which rows it went into, instead of which records it is made of",
    )
    parser.add_argument(
        "--to",
        metavar="OPERATOR",
        help="no further than the rows of this one; to the ends of the query unless said",
    )
    parser.add_argument(
        "--through-state",
        action="store_true",
        help="also over what functions keep in state: of all records that it may be made of, an upper bound",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for each call")


def run(arguments: argparse.Namespace) -> int:
    """Print it; 1 where something of it is not in the archive."""
    query = ArchivedQuery(arguments.checkpoint)
    start = RowId.parse(arguments.record, query.id)
    end = _end(query, arguments, start)
    query.load_programs()
    follow = forward if arguments.forward else backward
    known = ArchivedDerivations(query, through_state=arguments.through_state)
    shown, lacks, held = 0, False, list[Lost]()
    for found in follow(query.program, known, [start.record], ends_at=lambda node: node == end):
        lacks = lacks or isinstance(found, Lost) or found.kept_before is not None
        if isinstance(found, Lost) and not shown:
            held.append(found)  # it may be all that there is to say
            continue
        for each in (*held, found):
            shown += 1
            said = json.dumps(document(query, each)) if arguments.json else "\n".join(_lines(query, each))
            print(said, flush=True)
        held.clear()
    if held:
        raise StateError(
            f"{_said(query, held[0].records[0])} cannot be had: {held[0].why}",
            hint="`clonos archive list` shows which epochs there are, `clonos archive verify` which can be repeated",
        )
    if not shown:
        print(f"{_said(query, start.record)}: no operator has made a row of it", file=sys.stderr)
    return 1 if lacks else 0


def _end(query: ArchivedQuery, arguments: argparse.Namespace, start: RowId) -> NodeId | None:
    """Raises ConfigurationError where the record is of no node of the query, or nothing leads from it to the end."""
    nodes = {node.number: node for node in query.program.nodes if node.kind is not NodeKind.SINK}
    node = nodes.get(start.origin.node)
    if node is None or (node.kind is NodeKind.OPERATOR and start.origin.instance >= node.parallelism):
        raise ConfigurationError(
            f"{start} is of no source and no operator of the query",
            hint="Ids begin with the number of the node: "
            + ", ".join(f"{each.number} ({each.name})" for each in nodes.values()),
        )
    if node.kind is NodeKind.SOURCE and not arguments.forward:
        raise ConfigurationError(
            f"{start} is a record of a source, which is made of nothing that the query knows",
            hint="With --forward it is said what it went into",
        )
    if arguments.to is None:
        return None
    end = query.node(arguments.to)
    first, last = (node.number, end) if arguments.forward else (end, node.number)
    if not leads_to(query.program, first, last):
        way = "goes into rows" if arguments.forward else "is made of rows"
        raise ConfigurationError(
            f"no row of {node.name!r} {way} of {arguments.to!r}", hint="Name another operator with --to"
        )
    return end


def document(query: ArchivedQuery, found: Derivation | Lost) -> dict[str, Any]:
    """A derivation, with records by their ids, those of sources with where they are, too; or what is lacking."""
    if isinstance(found, Lost):
        return _lost(query, found)
    said = {
        "operator": query.program.node(found.origin.node).name,
        "instance": found.origin.instance,
        "epoch": found.epoch,
        "made_by_a": found.form,
        "rows": [str(RowId.of(row)) for row in found.rows()],
        "of": [_input(query, record) for record in found.exactly_of()],
    }
    if at_most := found.at_most_of():
        said["at_most_of"] = [_input(query, record) for record in at_most]
    if found.kept_before is not None:
        said["kept_before"] = found.kept_before
    return said


def _lost(query: ArchivedQuery, found: Lost) -> dict[str, Any]:
    ids = [str(RowId.of(record)) for record in found.records]
    sender = query.instance(channel_origin(found.records[0].channel))
    if sender is None:
        return {"records": ids, "lacking": found.why}
    where = {"operator": sender.operator, "instance": sender.origin.instance}
    return {**where, "rows": ids, "lacking": found.why}


def _input(query: ArchivedQuery, record: RecordId) -> dict[str, Any]:
    said: dict[str, Any] = {"id": str(RowId.of(record))}
    origin = channel_origin(record.channel)
    if query.instance(origin) is None:
        said |= {"source": query.source(origin), "position": record.position}
    return said


def _said(query: ArchivedQuery, record: RecordId) -> str:
    origin = channel_origin(record.channel)
    if query.instance(origin) is None:
        return f"{RowId.of(record)} ({query.source(origin)}, position {record.position})"
    return str(RowId.of(record))


def _lines(query: ArchivedQuery, derivation: Derivation | Lost) -> Iterator[str]:
    if isinstance(derivation, Lost):
        lost = [_said(query, record) for record in derivation.records[:_SHOWN]]
        sender = query.instance(channel_origin(derivation.records[0].channel))
        yield ("" if sender is None else f"{sender}: ") + _first(lost, len(derivation.records))
        yield f"  CANNOT BE HAD: {derivation.why}"
        return
    name = query.program.node(derivation.origin.node).name
    shown = _first([str(RowId.of(row)) for row in derivation.rows()][:_SHOWN], derivation.count)
    how = {"record": "", "bundle": ", of all records of a call"}.get(
        derivation.form, f", at the {derivation.form}"
    )
    yield f"{name}[{derivation.origin.instance}] epoch {derivation.epoch}: {shown}{how}"
    for of, records in (("of", derivation.exactly_of()), ("at most of", derivation.at_most_of())):
        yield from (f"  {of} {_said(query, record)}" for record in records[:_SHOWN])
        if len(records) > _SHOWN:
            yield f"  {of} {len(records) - _SHOWN:,} more"
    if derivation.kept_before is not None:
        yield f"  of what was kept before epoch {derivation.kept_before}, which the archive does not have"


def _first(records: list[str], count: int) -> str:
    """These, of so many."""
    return ", ".join(records) + (f" and {count - len(records):,} more" if count > len(records) else "")
