"""The command `clonos export`: calls of functions out of the archive, as files that pytest tries again."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from clonos.archive.explain import RowId
from clonos.archive.exporting import recorded_call
from clonos.archive.reading import ArchivedQuery
from clonos.archive.trial_process import TrialProcess
from clonos.errors import ClonosError, ConfigurationError, StateError
from clonos.storage import recorded_calls
from clonos.storage.durable_files import replace_file
from clonos.storage.recorded_calls import RecordedCall
from clonos.tools.written_file import written_to

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
    """Write them, and say where; 1 where one cannot be tried again, of which no file is left."""
    query = ArchivedQuery(arguments.checkpoint)
    rows = [RowId.parse(text, query.id) for text in arguments.row]
    query.load_programs()
    refused = False
    with TrialProcess() as trials:
        for row in rows:
            try:
                path, call = _exported(query, row, arguments, trials)
            except ClonosError as error:
                refused = True
                print(f"{row}: {type(error).__name__}: {error}", file=sys.stderr)
            else:
                print(
                    f"{path}: {call.function}, version {call.operator_version}, epoch {call.epoch}",
                    flush=True,
                )
    return int(refused)


def _exported(
    query: ArchivedQuery, row: RowId, arguments: argparse.Namespace, trials: TrialProcess
) -> tuple[Path, RecordedCall]:
    call = recorded_call(query, row, function=arguments.function)
    path = arguments.to / f"{_NO_NAME.sub('_', call.operator)}-{row}{recorded_calls.SUFFIX}"
    with written_to(path, "--to"):
        _write(path, call, row, trials)
    return path, call


def _write(path: Path, call: RecordedCall, row: RowId, trials: TrialProcess) -> None:
    """Raises StateError where the function says something else, and then leaves none."""
    if path.exists() and not _is_of_the_same_row(path, call):
        raise ConfigurationError(
            f"{path} is there, and is another query's", hint="Give another folder with --to, or remove it"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    tried = path.with_suffix(".tried")
    try:
        replace_file(tried, recorded_calls.encode(call))
        if lines := trials.differences(tried):
            raise StateError(
                f"the call that made row {row} says something else when {call.function} is given it by itself: "
                f"{'; '.join(lines)}",
                hint="It depends on what is neither in its record, nor in its state, nor asked of ctx; or another "
                "function has made it",
            )
        os.replace(tried, path)
    finally:
        tried.unlink(missing_ok=True)


def _is_of_the_same_row(path: Path, call: RecordedCall) -> bool:
    try:
        there = recorded_calls.decode(path.read_bytes(), str(path))
    except ClonosError:
        return False
    return (there.query, there.row) == (call.query, call.row)
