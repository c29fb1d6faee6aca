"""The command `clonos state`: the keyed state of an operator as it was, out of the archive."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from clonos.archive.asked_epochs import epoch_at
from clonos.archive.given_key import HELP as KEY, Key, KeyForm
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.archive.shown_value import as_json
from clonos.archive.states import KeyState, row_named, states_around, states_of
from clonos.operators.rows import zone_of
from clonos.values.grouping_keys import key_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos state`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument("--operator", required=True)
    parser.add_argument(
        "--at",
        required=True,
        metavar="EPOCH|TIME|ROW",
        help="at the end of this epoch, or of the last one that had ended at this time (ISO 8601; UTC unless it says "
        "where); or, of the instance that made the row with this id, right behind the call that made it",
    )
    parser.add_argument("--before", action="store_true", help="right before that call: as it found the state")
    parser.add_argument("--key", help=f"of this key alone: {KEY}")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    query = ArchivedQuery(arguments.checkpoint)
    query.load_programs()
    instances = query.instances(arguments.operator)
    query.check_archive(instances)
    form = KeyForm.of(query, arguments.operator)
    wanted = None if arguments.key is None else form.read_with_rest(arguments.key)
    found = False
    row = row_named(query, arguments.operator, arguments.at, before=arguments.before)
    if row is not None:
        states = states_around(query, row, before=arguments.before)
    else:
        states = _at_ends(instances, arguments.at)
    for key, value in states:
        if wanted is None or _is_of(key, wanted, form):
            print(_line(form, key, value, in_json=arguments.json))
            found = True
    if wanted is not None and not found:
        by = (
            ""
            if row is None
            else f" by {query.instance(row.origin)}, which made the row; other instances have other keys"
        )
        print(f"nothing was kept of key {form.text((*wanted[0], *wanted[1]))}{by}", file=sys.stderr)
        return 1
    return 0


def _at_ends(instances: list[ArchivedInstance], at: str) -> Iterator[KeyState]:
    for instance in instances:
        if instance.segments:  # else it has never run while there was an archive
            yield from states_of(instance, epoch_at(instance, at))


def _is_of(key: Key, wanted: tuple[Key, list[Any]], form: KeyForm) -> bool:
    """Whether it is this key, or, with a name behind it, what is kept under that."""
    of, name = wanted
    end = len(of)
    return key_of(key[:end]) == of and form.shown(key)[end : end + len(name)] == name


def _line(form: KeyForm, key: Key, value: Any, *, in_json: bool) -> str:
    if in_json:
        return json.dumps({"key": form.shown(key), "state": as_json(value, zone_of(form.zone))})
    return f"{form.text(key)}: {value!r}"
