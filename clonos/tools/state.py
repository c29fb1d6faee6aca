"""The command `clonos state`: the keyed state of an operator as it was at the end of an epoch, out of the archive."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from clonos.archive.explain import as_json
from clonos.archive.reading import LAST, ArchivedInstance, ArchivedQuery, desk_for, epoch_at
from clonos.errors import StateError
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.ids import Epoch
from clonos.values.readable import key_said


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos state`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument("--operator", required=True)
    parser.add_argument(
        "--at",
        required=True,
        metavar="EPOCH|TIME",
        help="at the end of this epoch, or of the last one that had ended at this time (ISO 8601; UTC unless it says "
        "where)",
    )
    parser.add_argument(
        "--key", help="of this key alone: as JSON, of several columns a list; other text as it stands"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    query = ArchivedQuery(arguments.checkpoint)
    query.load_programs()
    wanted = _key(arguments.key)
    found = False
    for instance in query.instances(arguments.operator):
        if not instance.segments:
            continue  # it has never run while there was an archive
        for key, value in _states(instance, epoch_at(instance, arguments.at)):
            if wanted is None or list(key)[: len(wanted)] == wanted:
                print(_line(key, value, in_json=arguments.json))
                found = True
    if wanted is not None and not found:
        print(f"nothing was kept of key {', '.join(map(repr, wanted))}", file=sys.stderr)
        return 1
    return 0


def _key(text: str | None) -> list[Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    return found if isinstance(found, list) else [found]


def _states(instance: ArchivedInstance, epoch: Epoch) -> Iterator[tuple[Any, Any]]:
    with desk_for(instance) as desk:
        for found in instance.repeated(epoch, desk, number=LAST):
            if isinstance(found, Lacking):
                raise StateError(
                    f"the state of {instance} at the end of epoch {epoch} cannot be had: {found.why}",
                    hint="`clonos archive verify` says of every epoch whether it can be repeated",
                )
        for data, value in desk.states():
            said = key_said(data)
            yield said if isinstance(said, tuple) else (said,), value


def _line(key: Any, value: Any, *, in_json: bool) -> str:
    if in_json:
        return json.dumps(as_json({"key": list(key), "state": value}), default=repr)
    return f"{', '.join(map(repr, key))}: {value!r}"
