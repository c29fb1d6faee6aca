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
from clonos.errors import ConfigurationError
from clonos.protocol.archive.lineage import Derivation, backward, forward, leads_to
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
    nothing, lacks = True, False
    for derivation in follow(query.program, known, [start.record], ends_at=lambda node: node == end):
        nothing, lacks = False, lacks or derivation.kept_before is not None
        if arguments.json:
            print(json.dumps(document(query, derivation)), flush=True)
        else:
            print("\n".join(_lines(query, derivation)), flush=True)
    if nothing:
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


def document(query: ArchivedQuery, derivation: Derivation) -> dict[str, Any]:
    """A derivation, with records by their ids; those of sources with where they are, too."""
    said = {
        "operator": query.program.node(derivation.origin.node).name,
        "instance": derivation.origin.instance,
        "epoch": derivation.epoch,
        "made_by_a": derivation.form,
        "rows": [str(RowId.of(row)) for row in derivation.rows()],
        "of": [_input(query, record) for record in derivation.exactly_of()],
    }
    if at_most := derivation.at_most_of():
        said["at_most_of"] = [_input(query, record) for record in at_most]
    if derivation.kept_before is not None:
        said["kept_before"] = derivation.kept_before
    return said


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


def _lines(query: ArchivedQuery, derivation: Derivation) -> Iterator[str]:
    name = query.program.node(derivation.origin.node).name
    rows = [str(RowId.of(row)) for row in derivation.rows()]
    shown = ", ".join(rows[:_SHOWN]) + (f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else "")
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
