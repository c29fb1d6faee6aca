"""The subcommands of `clonos log`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from clonos.errors import ClonosError, ConfigurationError
from clonos.tools.log import readable
from clonos.tools.log.reading import read
from clonos.tools.log.replaying import replay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_subparsers(metavar="what", required=True)
    inspect = chosen.add_parser("inspect", help="print what a log or a dead letter holds, a step per line")
    inspect.add_argument("path", type=Path, help="a log store, a sink's write-ahead log, or a dead letter")
    inspect.add_argument("--json", action="store_true", help="one JSON document")
    inspect.set_defaults(act=_inspect)
    verify = chosen.add_parser(
        "verify", help="check checksums and contiguity; exit 1 where something is wrong"
    )
    verify.add_argument("path", type=Path, nargs="+")
    verify.set_defaults(act=_verify)
    again = chosen.add_parser("replay", help="run a function on the record of a dead letter, here and now")
    again.add_argument("letter", type=Path)
    again.add_argument(
        "--function", required=True, metavar="MODULE:FUNCTION", help="the function, perhaps mended"
    )
    again.add_argument(
        "--recorded-only", action="store_true", help="fail instead of asking a live service or acting outside"
    )
    again.add_argument("--deadline", type=float, default=60.0, metavar="SECONDS", help="default 60")
    again.add_argument("--json", action="store_true", help="one JSON document")
    again.set_defaults(act=_replay)


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.act(arguments)
    return code


def _inspect(arguments: argparse.Namespace) -> int:
    said = readable.found_said(read(arguments.path))
    if arguments.json:
        print(json.dumps(said, indent=2, default=str))
    else:
        for line in readable.lines_of(said):
            print(line)
    return 1 if said["problems"] else 0


def _verify(arguments: argparse.Namespace) -> int:
    wrong = 0
    for path in arguments.path:
        try:
            found = read(path)
        except ClonosError as error:  # the others are looked at all the same
            wrong += 1
            print(f"{path}: cannot be read\n  WRONG: {error}")
            continue
        wrong += len(found.problems)
        print(f"{path}: {found.kind}, {'damaged' if found.problems else 'in order'}")
        for note in found.notes:
            print(f"  note: {note}")
        for problem in found.problems:
            print(f"  WRONG: {problem}")
    return 1 if wrong else 0


def _replay(arguments: argparse.Namespace) -> int:
    found = read(arguments.letter)
    if found.letter is None:
        why = found.problems[0] if found.problems else "it is a " + found.kind
        raise ConfigurationError(f"{arguments.letter} cannot be replayed: {why}", hint="Give a dead letter")
    return replay(
        arguments.letter,
        arguments.function,
        recorded_only=arguments.recorded_only,
        deadline=arguments.deadline,
        as_json=arguments.json,
    )
