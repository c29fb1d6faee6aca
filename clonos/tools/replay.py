"""The command `clonos replay`: stops in the user's function where it made a row, or runs another one over what was.

The function is repeated at a desk, out of the archive: without Spark, and without asking anything of the outside.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from clonos.archive.asked_epochs import asked_epochs
from clonos.archive.attached_editor import AttachAddress, EditorDebugger
from clonos.archive.debugging import Debugger, Stop, StoppedThere, under_pdb
from clonos.archive.explain import RowId, made_by
from clonos.archive.gaps import ArchiveGaps
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.recorded_answers import Calls
from clonos.archive.shown_row import ShownRow
from clonos.archive.shown_value import as_json, columns
from clonos.archive.tracing import TracedCall
from clonos.archive.what_if import Compared, Difference, WhatIf
from clonos.errors import ConfigurationError, StateError
from clonos.operators.named_object import named_object
from clonos.operators.rows import zone_of
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Epoch
from clonos.storage.working_folders import working_folder

_OF_ONE_ROW = ("pdb", "debugpy")
_OF_COMPARING = ("operator", "on_timer", "since", "upto", "columns", "calls", "examples", "json")
"""Options that are of use with the one or the other alone, by where they are kept; none has a default there."""
_SPELLED = {"since": "--from", "upto": "--to"}
_EXAMPLES = 10
_UNDER = "clonos_other_function"
"""The name of a file's module: the job's own may have the name that the file has."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos replay`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument("--row", metavar="ID", help="up to the call that made this row, as its sink shows it")
    debuggers = parser.add_mutually_exclusive_group()
    debuggers.add_argument("--pdb", action="store_true", help="stop there in the user's function")
    debuggers.add_argument(
        "--debugpy",
        metavar="[HOST:]PORT",
        help="stop there for an editor, which attaches at this address over the Debug Adapter Protocol",
    )
    parser.add_argument(
        "--against",
        metavar="FUNCTION",
        help="what this function would have said in the place of an operator's: module:function, or file.py:function",
    )
    parser.add_argument("--operator", help="whose function it stands for")
    parser.add_argument("--on-timer", metavar="FUNCTION", help="another one for its timers, too")
    parser.add_argument(
        "--from",
        dest="since",
        metavar="EPOCH|TIME",
        help="from there on; from the first repeatable one unless said",
    )
    parser.add_argument("--to", dest="upto", metavar="EPOCH|TIME", help="up to there")
    parser.add_argument(
        "--columns",
        metavar="COLUMNS",
        help="with commas: rows differ where these do; where any does unless said",
    )
    parser.add_argument(
        "--calls",
        choices=[each.value for each in Calls],
        help="what becomes of a call of which no answer is recorded: what comes of the record is not known, or it is "
        f"made now ({Calls.FAIL.value})",
    )
    parser.add_argument("--examples", type=int, metavar="N", help=f"so many differences ({_EXAMPLES})")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Do it. With `--against`, 1 where anything differs or is not known."""
    _check(arguments)
    debugger = _debugger(arguments)
    query = ArchivedQuery(arguments.checkpoint)
    query.load_programs()
    if arguments.row is not None:
        return _stop(query, RowId.parse(arguments.row, query.id), debugger)
    if arguments.operator is None:
        raise ConfigurationError(
            "--against stands for the function of an operator", hint="Name it with --operator"
        )
    return _compare(query, arguments)


def _check(arguments: argparse.Namespace) -> None:
    """Raises ConfigurationError where it is not one thing that is asked for."""
    if arguments.row is None and arguments.against is None:
        raise ConfigurationError("what is to be replayed is not said", hint="Give either --row or --against")
    if arguments.row is not None and arguments.against is not None:
        raise ConfigurationError(
            "--row stops where a row was made, and --against runs another function over all records: they are two "
            "things",
            hint="Leave one of them out",
        )
    asked, other, of_other = (
        ("--against", "--row", _OF_ONE_ROW)
        if arguments.row is None
        else ("--row", "--against", _OF_COMPARING)
    )
    given = [each for each in of_other if getattr(arguments, each) not in (None, False)]
    if given:
        named = [_SPELLED.get(each, f"--{each.replace('_', '-')}") for each in given]
        raise ConfigurationError(
            f"{asked} takes no {' and no '.join(named)}: that is for {other}", hint="Leave it out"
        )


# ------------------------------------------------------------------------ one row


def _debugger(arguments: argparse.Namespace) -> Debugger | None:
    if arguments.debugpy is not None:
        return EditorDebugger(AttachAddress.parse(arguments.debugpy), _waits)
    return under_pdb if arguments.pdb else None


def _waits(address: AttachAddress) -> None:
    print(f"waits for an editor to attach to {address}", flush=True)


def _stop(query: ArchivedQuery, row: RowId, debugger: Debugger | None) -> int:
    instance, epoch, call = made_by(query, row)
    print(
        f"row {row} was made by {instance}, epoch {epoch}, {_called(call)}",
        flush=True,
    )
    if debugger is None:
        return 0
    stop = Stop(call, debugger)
    with desk_for(instance, stop) as desk:
        try:
            for _ in instance.repeated(epoch, desk, number=row.number):
                """Up to the call."""
        except StoppedThere:
            return 0
    raise StateError(f"the call that made row {row} was not repeated again")


def _called(call: TracedCall) -> str:
    key = ", ".join(map(repr, call.keys[0])) if len(call.keys) == 1 else ""
    if len(call.timers) == 1:
        return f"in the timer {call.timers[0][1]!r} of key {key}"
    if call.timers:
        return f"in {len(call.timers)} timers that fired together"
    if not call.inputs:
        return f"at the {call.form}"
    has_keys = any(call.keys)  # of an operator without, it is empty
    of = f"key {key}, " if key else f"{len(call.keys)} keys, " if has_keys else ""
    return (
        f"in the call for {of}{call.inputs[0].row!r}"
        if len(call.inputs) == 1
        else (f"in the call for {of}{len(call.inputs)} records")
    )


# --------------------------------------------------------------- another function


def _compare(query: ArchivedQuery, arguments: argparse.Namespace) -> int:
    fn, on_timer = _function(arguments.against), arguments.on_timer and _function(arguments.on_timer)
    total, gaps = Compared(), ArchiveGaps.of_query(query)
    for instance in query.instances(arguments.operator):
        asked = asked_epochs(instance, gaps, arguments.since, arguments.upto, first=instance.first)
        for absent in asked.absent:
            raise _not_repeated(instance, str(absent))
        if asked.between is None:
            continue  # it has never run while there was an archive, or ended no epoch
        since, upto = asked.between
        if upto < since:
            raise ConfigurationError(f"it begins with epoch {since}, and ends with epoch {upto} before that")
        found = _compared(query, instance, since, upto, fn, on_timer, arguments)
        _add(total, found, _examples(arguments))
    if not total.records:
        raise StateError("nothing was compared: no record of these epochs is in the archive")
    print(
        json.dumps(as_json(_document(total), zone_of(query.zone)), indent=1)
        if arguments.json
        else "\n".join(_lines(total))
    )
    return 1 if total.differ or total.unknown else 0


def _examples(arguments: argparse.Namespace) -> int:
    return _EXAMPLES if arguments.examples is None else arguments.examples


def _compared(
    query: ArchivedQuery,
    instance: ArchivedInstance,
    since: Epoch,
    upto: Epoch,
    fn: Callable[..., Any],
    on_timer: Callable[..., Any] | None,
    arguments: argparse.Namespace,
) -> Compared:
    with working_folder("desk") as folder:
        what_if = WhatIf(
            fn,
            on_timer,
            Path(folder, "other"),
            since=since,
            calls=Calls(arguments.calls or Calls.FAIL),
            examples=_examples(arguments),
            intercept=query.intercept,
            columns=frozenset(filter(None, map(str.strip, (arguments.columns or "").split(",")))),
        )
        with desk_for(instance, what_if) as desk:
            for found in instance.repeated(upto, desk, since=since, begins=partial(what_if.begins, desk)):
                if isinstance(found, Lacking):
                    behind = instance.first_behind(since if found.epoch is None else found.epoch, upto)
                    raise _not_repeated(instance, found.why, behind)
            what_if.close()
    return what_if.compared


def _not_repeated(instance: ArchivedInstance, why: str, behind: Epoch | None = None) -> StateError:
    """With the epoch from which it may be, if there is one."""
    from_there = (
        ""
        if behind is None
        else f"There is a state to begin with again before epoch {behind}: --from {behind}. "
    )
    return StateError(
        f"{instance} cannot be repeated: {why}",
        hint=f"{from_there}`clonos archive verify` says of every epoch whether it can be repeated",
    )


def _function(named: str) -> Callable[..., Any]:
    """Of a module, or of a file."""
    path, colon, name = named.rpartition(":")
    if not colon or not path.endswith(".py"):
        found = named_object(named)
    else:
        spec = importlib.util.spec_from_file_location(_UNDER, path)
        if spec is None or spec.loader is None or not Path(path).exists():
            raise ConfigurationError(f"there is no file {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ConfigurationError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
        found = getattr(module, name, None)
    if not callable(found):
        raise ConfigurationError(f"{named} is no function")
    function: Callable[..., Any] = found
    return function


def _add(total: Compared, found: Compared, examples: int) -> None:
    for name in ("records", "rows_then", "rows_now", "differ", "unknown"):
        setattr(total, name, getattr(total, name) + getattr(found, name))
    total.examples += found.examples[: examples - len(total.examples)]


def _document(total: Compared) -> dict[str, Any]:
    return {
        "records": total.records,
        "rows": {"then": total.rows_then, "now": total.rows_now},
        "differ": total.differ,
        "unknown": total.unknown,
        "examples": [
            {
                "epoch": one.epoch,
                "record": one.record,
                "then": [_row(each) for each in one.then],
                "now": [_row(each) for each in one.now],
                **({"effects": list(one.effects)} if one.effects else {}),
                **({"unknown": one.unknown} if one.unknown else {}),
            }
            for one in total.examples
        ],
    }


def _row(row: ShownRow) -> dict[str, Any]:
    """With the output that it is of, where that is not the main one."""
    place = {"side output": row.side_output, "through": row.through}
    return {**{name: said for name, said in place.items() if said}, **row.columns}


def _lines(total: Compared) -> Iterator[str]:
    share = (total.differ + total.unknown) / total.records if total.records else 0.0
    yield (
        f"{total.records:,} records, {total.rows_then:,} rows then, {total.rows_now:,} now: {total.differ:,} records "
        f"differ, of {total.unknown:,} it is not known ({share:.2%})"
    )
    for one in total.examples:
        yield from _difference(one)


def _difference(one: Difference) -> Iterator[str]:
    yield f"epoch {one.epoch}: {'timers' if one.record is None else columns(one.record)}"
    for sign, rows in (("-", one.then), ("+", one.now)):
        yield from (f"  {sign} {columns(_row(row))}" for row in rows)
    yield from (f"  {line}" for line in one.effects)
    if one.unknown:
        yield f"  ? {one.unknown}"
