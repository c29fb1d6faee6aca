"""The command `clonos export`: calls of functions out of the archive, as files that pytest tries again."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from clonos.archive.explain import RowId
from clonos.archive.exporting import recorded_call
from clonos.archive.reading import ArchivedQuery
from clonos.errors import ConfigurationError
from clonos.storage import recorded_calls
from clonos.storage.durable_files import replace_file

_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos export`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument(
        "--row",
        action="append",
        required=True,
        metavar="ID",
        help="the id of a row, as its sink shows it (clonos_id): the call that made it; as often as wanted",
    )
    parser.add_argument(
        "--to", type=Path, default=Path(), metavar="FOLDER", help="where the files go (this one)"
    )
    parser.add_argument(
        "--function", default="", metavar="MODULE:NAME", help="where the test is to find the function"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write them, and say where."""
    query = ArchivedQuery(arguments.checkpoint)
    rows = [RowId.parse(text, query.id) for text in arguments.row]
    query.load_programs()
    for row in rows:
        call = recorded_call(query, row, function=arguments.function)
        if not call.function:
            raise ConfigurationError(
                f"the function of {call.operator!r} has no name by which a test could import it",
                hint="Put it into a module, and name it with --function module:name",
            )
        path = arguments.to / f"{_NO_NAME.sub('_', call.operator)}-{row}{recorded_calls.SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(str(path), recorded_calls.encode(call))
        print(f"{path}: {call.function}, version {call.operator_version}, epoch {call.epoch}")
    return 0
