"""The command `clonos archive`: what is kept, and whether it can be repeated."""

from __future__ import annotations

import argparse
import json

from clonos.archive.gaps import ArchiveGaps
from clonos.archive.reading import ArchivedInstance, ArchivedQuery
from clonos.errors import ConfigurationError
from clonos.protocol.ids import Epoch
from clonos.tools.archive import find as find_command, forget as forget_command
from clonos.tools.archive.listing import print_list
from clonos.tools.archive.verifying import is_well, line, verified


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `clonos archive`."""
    parts = parser.add_subparsers(metavar="what", required=True, dest="what")
    listed = parts.add_parser("list", help="which epochs of which instances there are")
    verify = parts.add_parser("verify", help="repeat them, and compare with what was recorded")
    find = parts.add_parser("find", help="the rows of an operator that had these values, for clonos explain")
    forget = parts.add_parser("forget", help="erase a key, so that nothing of it can be repeated")
    forget.add_argument("checkpoint", help="the query's checkpointLocation")
    forget_command.add_arguments(forget)
    for each in (listed, verify, find):
        each.add_argument("checkpoint", help="the query's checkpointLocation")
        each.add_argument("--operator", help="of this one alone", required=each is find)
        each.add_argument("--json", action="store_true", help="one JSON object")
    find_command.add_arguments(find)
    verify.add_argument("--instance", type=int, help="this one alone")
    verify.add_argument(
        "--epoch", type=_epoch, help="this one, and what has to be repeated before it; all unless said"
    )


def _epoch(text: str) -> Epoch:
    return Epoch(int(text))


def run(arguments: argparse.Namespace) -> int:
    """Print it; 1 where something cannot be repeated."""
    query = ArchivedQuery(arguments.checkpoint)
    if arguments.what == "forget":
        query.load_programs()
        return forget_command.run(query, arguments)
    gaps = ArchiveGaps.of_query(query)
    instances = query.instances(arguments.operator)
    query.check_archive(instances)
    if arguments.what == "list":
        print_list(instances, gaps, in_json=arguments.json)
        return 0
    query.load_programs()
    if arguments.what == "find":
        return find_command.run(query, instances, gaps, arguments)
    results = []
    for each in _chosen(instances, arguments.instance):
        for result in verified(each, gaps.of(each), arguments.epoch):
            results.append(result)
            if not arguments.json:
                print(line(result), flush=True)
    if arguments.json:
        print(json.dumps(results, indent=1))
    return 0 if is_well(results) else 1


def _chosen(instances: list[ArchivedInstance], number: int | None) -> list[ArchivedInstance]:
    """Raises ConfigurationError where none has this number."""
    chosen = [each for each in instances if number in (None, each.origin.instance)]
    if not chosen:
        raise ConfigurationError(
            f"there is no instance {number} of {_names(instances)}",
            hint=f"There are {', '.join(map(str, instances))}",
        )
    return chosen


def _names(instances: list[ArchivedInstance]) -> str:
    return ", ".join(dict.fromkeys(each.operator for each in instances))
