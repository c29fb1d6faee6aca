"""The command `clonos status`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from clonos.errors import NotRunning
from clonos.tools.live_query import find
from clonos.tools.status.describe import describe
from clonos.tools.status.text import render

_CLEAR = "\x1b[2J\x1b[H"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos status`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument("--json", action="store_true", help="one JSON object; with --watch one a line")
    parser.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=2.0,
        metavar="SECONDS",
        help="again and again, until interrupted; every 2 seconds unless said otherwise",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 86400")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    if arguments.watch is None:
        print(_text(arguments))
        return 0
    clear = _CLEAR if sys.stdout.isatty() else ""
    try:
        while True:
            try:
                print(clear + _text(arguments), flush=True)
            except NotRunning as error:  # its server may be back in a moment
                print(f"{clear}{error}", file=sys.stderr, flush=True)
            time.sleep(arguments.watch)
    except KeyboardInterrupt:
        return 0


def _text(arguments: argparse.Namespace) -> str:
    said = describe(find(arguments.checkpoint))
    return json.dumps(said) if arguments.json else render(said, time.time())
