"""The command `clonos checkpoint`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import sys
from typing import Any

from clonos.errors import ConfigurationError
from clonos.spark.checkpoint import checkpoint_at
from clonos.tools.checkpoint.describe import described, render


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos checkpoint`."""
    parser.add_argument("checkpoint", help="the query's checkpointLocation")
    parser.add_argument(
        "--against",
        metavar="MODULE:FUNCTION",
        help="what a program would change: the function gives the writer of the query, not started. Asked while the "
        "query is not running",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print it; 1 where the program is refused."""
    checkpoint = checkpoint_at(arguments.checkpoint)
    said = described(checkpoint)
    if arguments.against is not None:
        said["program"] = _writer(arguments.against).explain_upgrade(checkpoint.location).to_document()
    print(json.dumps(said, indent=1) if arguments.json else "\n".join(render(said)))
    return 1 if said.get("program", {}).get("refused") else 0


def _writer(place: str) -> Any:
    """What the function gives. Modules are found in the working directory, too."""
    module, colon, name = place.partition(":")
    if not colon or not module or not name:
        raise ConfigurationError(
            f"{place!r} names no function", hint="Say module:function, as in jobs.totals:build"
        )
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{place!r} cannot be imported: {error}") from error
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{place!r} cannot be called without arguments: {error}",
            hint="Name a function that takes none and gives the query's writer",
        ) from error
    writer = function()
    if not hasattr(writer, "explain_upgrade"):
        raise ConfigurationError(
            f"{place!r} gave {writer!r}",
            hint="It must give stream.writeStream.to(sink) with its options, without start()",
        )
    return writer
