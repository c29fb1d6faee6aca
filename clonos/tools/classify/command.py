"""The arguments of `clonos classify`, and what it does with them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from clonos.operators.named_object import named_object
from clonos.testing.classification import Laboratory, Requirement, classify
from clonos.testing.classification.classify import RUNS
from clonos.testing.classification.laboratory import DEADLINE_S
from clonos.tools.classify.given_operator import Api, given_operator
from clonos.tools.classify.given_rows import read_rows
from clonos.tools.classify.report import lines_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="the function, a StatefulProcessor, or an operator defined on clonos.testing.driver.stream(...)",
    )
    parser.add_argument(
        "--api",
        choices=[api.value for api in Api],
        default=Api.PROCESS.value,
        help="what the function is given to (default process)",
    )
    parser.add_argument("--schema", metavar="DDL", help='of its rows, such as "k string, v long"')
    parser.add_argument(
        "--key", metavar="COLUMNS", help="what its rows are grouped by, with commas in between"
    )
    parser.add_argument("--output", metavar="DDL", help="the schema of its output rows")
    parser.add_argument("--state", metavar="DDL", help="the schema of its state (of applyInPandasWithState)")
    parser.add_argument("--on-timer", metavar="MODULE:FUNCTION", help="for the timers that it sets")
    parser.add_argument(
        "--input", type=Path, metavar="JSONL", help="rows to try it with, a JSON object per line"
    )
    parser.add_argument(
        "--channel",
        metavar="COLUMN",
        help="rows with the same value of this column keep their order; without it, any two may change places",
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"default {RUNS}")
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other inputs (default 0)")
    parser.add_argument(
        "--effects", action="store_true", help="carry out the actions of ctx.effect, for each run anew"
    )
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        choices=[requirement.value for requirement in Requirement],
        help="exit 1 where this is not so; may be given several times",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE_S,
        metavar="SECONDS",
        help=f"how long one run may take (default {DEADLINE_S:g})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """0 where everything is so that is required, and that its functions claim."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does
    rows = None if arguments.input is None else read_rows(arguments.input, arguments.schema)
    operator = given_operator(
        named_object(arguments.function),
        Api(arguments.api),
        arguments.function,
        schema=arguments.schema or (None if rows is None else rows.schema),
        key=[column.strip() for column in (arguments.key or "").split(",") if column.strip()],
        output=arguments.output,
        state=arguments.state,
        on_timer=None if arguments.on_timer is None else named_object(arguments.on_timer),
    )
    with Laboratory(deadline_s=arguments.deadline) as laboratory:
        found = classify(
            operator,
            None if rows is None else rows.to_pylist(),
            runs=arguments.runs,
            seed=arguments.seed,
            channel=arguments.channel,
            performs_effects=arguments.effects,
            laboratory=laboratory,
        )
    unmet = [required for required in arguments.require if not found.meets(Requirement(required))]
    if arguments.json:
        print(json.dumps({**found.as_json(), "unmet": unmet}, indent=2))
    else:
        for line in lines_of(found):
            print(line)
        for required in unmet:
            print(f"\nREQUIRED, and not so: {required}")
        if found.belies_claim:
            print(f"\nCLAIMED, and not so: {found.claimed.value}")
    return 1 if unmet or found.belies_claim else 0
