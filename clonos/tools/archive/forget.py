"""The command `clonos archive forget`: erase a key from an archive."""

from __future__ import annotations

import argparse
import json
from typing import Any

from clonos.archive.erasing import Erasure, KeyEraser, finish_erasure
from clonos.archive.given_key import HELP as KEY
from clonos.archive.reading import ArchivedQuery
from clonos.errors import StateError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos archive forget`, but for the checkpoint."""
    parser.add_argument("--operator", required=True, help="whose key it is")
    parser.add_argument("--key", required=True, help=KEY)
    parser.add_argument("--yes", action="store_true", help="erase it; without, say only what would go")
    parser.add_argument(
        "--erase-unknown",
        action="store_true",
        help="erase what cannot be looked into, too, in which the key may be",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(query: ArchivedQuery, arguments: argparse.Namespace) -> int:
    """Print what goes, or has gone; 1 where that would leave something of which it is not known."""
    if query.archive.erasure():
        if not arguments.yes:
            raise StateError(
                "another erasure was cut short", hint="--yes goes on with it, before it begins anew"
            )
        finish_erasure(query)
        query = ArchivedQuery(arguments.checkpoint)
    eraser = KeyEraser(query, arguments.operator, arguments.key)
    found = eraser.find()
    if found.unknown and not arguments.erase_unknown:
        _print(found, is_done=False, in_json=arguments.json)
        one, why = next(iter(found.unknown.items()))
        raise StateError(
            f"whether the key is in {one} cannot be found out ({why})",
            hint="Mend that, as by running this where the modules of the query are, or give --erase-unknown, which "
            "erases it, too",
        )
    if arguments.yes:
        eraser.carry_out(found)
    _print(found, is_done=arguments.yes, in_json=arguments.json)
    return 0


def _print(found: Erasure, *, is_done: bool, in_json: bool) -> None:
    said: dict[str, Any] = {
        "erased": is_done,
        "epochs": sorted(found.epochs),
        "states": found.states,
        "unknown": found.unknown,
    }
    if in_json:
        print(json.dumps(said, indent=1))
        return
    for what, why in found.unknown.items():
        print(f"cannot be looked into: {what}: {why}")
    epochs = ", ".join(map(str, said["epochs"])) or "none"
    done = "erased" if is_done else "to erase"
    print(f"{done}: epochs, of all instances: {epochs}; what {found.states} states have of the key")
    if not is_done:
        print("nothing is erased yet: --yes does it")
