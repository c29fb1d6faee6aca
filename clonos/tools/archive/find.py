"""The command `clonos archive find`: which rows of an operator had these values."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import Any, TextIO

from clonos.archive.asked_epochs import asked_epochs
from clonos.archive.condition import Condition
from clonos.archive.explain import RowId
from clonos.archive.finding import Finder, FoundRow, NoSuchRows, NotSearched, search
from clonos.archive.gaps import ArchiveGaps
from clonos.archive.masking import WITHOUT_TEXT, Mask
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.archive.shown_value import as_json, columns
from clonos.errors import ConfigurationError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Origin


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos archive find`, but for the checkpoint, the operator, and `--json`."""
    parser.add_argument(
        "where",
        nargs="+",
        metavar="COLUMN=VALUE",
        help="the value by the column's type, as `clonos archive find` shows it; `all` is every row",
    )
    parser.add_argument("--limit", type=_at_least_one, metavar="N", help="no more than so many rows")
    parser.add_argument(
        "--mask",
        default="",
        metavar="COLUMNS",
        help="with commas: their values are not shown, nor looked for",
    )
    for name, to, help in (
        ("from", "since", "from there on; all there is unless said"),
        ("to", "upto", "up to there"),
    ):
        parser.add_argument(f"--{name}", dest=to, metavar="EPOCH|TIME", help=help)


def _at_least_one(text: str) -> int:
    if (found := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return found


class _Enough(Exception):
    """So many rows as are wanted are found."""


class _Said:
    """What is found, and what could not be searched: as text at once, or to be said as JSON."""

    def __init__(self, mask: Mask, limit: int | None, *, in_json: bool) -> None:
        self._mask = mask
        self._limit = limit
        self._in_json = in_json
        self._out: TextIO = sys.stdout  # while a function is repeated, that is another one
        self.rows: list[dict[str, Any]] = []
        self.lacking: list[str] = []

    def found(self, origin: Origin, found: FoundRow) -> None:
        row, of = self._mask.row(found.row.columns), str(RowId(origin, found.number))
        self.rows.append({"id": of, "epoch": found.epoch, **found.row.place, "row": as_json(row)})
        if not self._in_json:
            place = f"  {found.row.place_text}" if found.row.place else ""
            print(f"{of}  epoch {found.epoch}{place}  {columns(row)}", file=self._out, flush=True)
        if len(self.rows) == self._limit:
            raise _Enough

    def lacks(self, found: NotSearched) -> None:
        lacking = found.lacking
        self.lacking.append(found.said(WITHOUT_TEXT if self._mask and lacking.has_raised else lacking.why))
        print(self.lacking[-1], file=sys.stderr)


def run(
    query: ArchivedQuery,
    instances: list[ArchivedInstance],
    gaps: ArchiveGaps,
    arguments: argparse.Namespace,
) -> int:
    """Print them; 1 where nothing is found, or something could not be searched."""
    conditions = [] if arguments.where == ["all"] else list(map(Condition.parse, arguments.where))
    mask = Mask.parse(arguments.mask)
    if note := mask.check(query):
        print(note, file=sys.stderr)
    if hidden := [
        each.column
        for each in conditions
        if mask.hides_of(query, each.column) or mask.hides_of_text(each.text)
    ]:
        raise ConfigurationError(f"values of {', '.join(hidden)} are not shown, nor looked for")
    said = _Said(mask, arguments.limit, in_json=arguments.json)
    try:
        for instance in instances:
            asked = asked_epochs(instance, gaps, arguments.since, arguments.upto)
            for absent in asked.absent:
                said.lacks(NotSearched(instance, (absent.first, absent.last), Lacking(absent.why)))
            if asked.between is None:
                continue
            since, upto = asked.between
            finder = Finder(conditions, partial(said.found, instance.origin), since=since)
            for each in search(instance, since, upto, finder):
                said.lacks(each)
    except _Enough:
        """What else there is was not asked for."""
    except NoSuchRows as none:
        raise none.error from None
    if arguments.json:
        print(json.dumps({"rows": said.rows, "lacking": said.lacking}, indent=1))
    return 0 if said.rows and not said.lacking else 1
