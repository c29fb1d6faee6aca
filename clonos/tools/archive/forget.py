"""The command `clonos archive forget`: erase a key from an archive."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from clonos.archive.erasing import Erasure, KeyEraser
from clonos.archive.erasing_steps import ErasureSteps, Lead, has_run_since, leading
from clonos.archive.given_key import HELP as KEY, Key
from clonos.archive.reading import ArchivedQuery
from clonos.ending import says_when_cut_short
from clonos.errors import StateError
from clonos.protocol.archive.erasure import ErasurePlan
from clonos.protocol.ids import Epoch
from clonos.storage.archive_keys import KEY_HINT

_CUT_SHORT: Final = (
    "clonos: the erasure was cut short. The same command again, with --yes, goes on with it; what is to be erased "
    "counts as erased until then"
)


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
    if arguments.yes:
        with leading(query) as lead:
            query.archive.sweep((each.origin for each in query.instances()), lead.fence)
            _erase(_anew(query), arguments, lead)
        return 0
    plan = query.erasure
    if plan is not None:
        hint = "--yes goes on with it"
        if plan.operator:
            hint = f"--operator {plan.operator}, the same --key again, and --yes go on with it"
        raise StateError("another erasure was cut short", hint=hint)
    found = _looked(_eraser(query, arguments), arguments)
    _print(found.epochs, found.states, found.unknown, is_done=False, in_json=arguments.json)
    return 0


def _anew(query: ArchivedQuery) -> ArchivedQuery:
    """As it is now."""
    return ArchivedQuery(query.checkpoint.location, query.key_file)


def _eraser(query: ArchivedQuery, arguments: argparse.Namespace) -> KeyEraser:
    return KeyEraser(query, arguments.operator, arguments.key)


def _erase(query: ArchivedQuery, arguments: argparse.Namespace, lead: Lead) -> None:
    """Whatever was begun before, first. All that decides anything is read while no driver leads the query."""
    begun = query.erasure
    if begun is not None:
        with says_when_cut_short(_CUT_SHORT):
            _go_on(query, begun, arguments, lead)
        query = _anew(query)
        if begun.operator and not has_run_since(query, begun):
            _print(begun.epochs, begun.states, {}, is_done=True, in_json=arguments.json)
            return
    eraser = _eraser(query, arguments)
    found = _looked(eraser, arguments)
    if not found.is_nothing:
        plan = eraser.plan(found, lead.fence)
        lead.check()
        with says_when_cut_short(_CUT_SHORT):
            query.archive.write_erasure(plan)
            _carry_out(query, plan, eraser.key, arguments, lead)
    epochs = found.epochs if begun is None else found.epochs | begun.epochs
    _print(epochs, found.states, found.unknown, is_done=True, in_json=arguments.json)


def _go_on(query: ArchivedQuery, plan: ErasurePlan, arguments: argparse.Namespace, lead: Lead) -> None:
    if not plan.operator:
        _carry_out(query, plan, (), arguments, lead)
        return
    if arguments.operator != plan.operator or not (eraser := _eraser(query, arguments)).is_of(plan):
        raise StateError(
            "the erasure of another key was cut short, and comes first",
            hint=f"Run that command again: --operator {plan.operator}, its --key, and --yes",
        )
    _carry_out(query, plan, eraser.key, arguments, lead)


def _carry_out(
    query: ArchivedQuery, plan: ErasurePlan, key: Key, arguments: argparse.Namespace, lead: Lead
) -> None:
    ErasureSteps(query, plan, key, lead, passes_over=arguments.erase_unknown).carry_out()


def _looked(eraser: KeyEraser, arguments: argparse.Namespace) -> Erasure:
    """What has to go. Raises StateError where it is not known of something, and that is not to go, too."""
    found = eraser.find()
    if found.unknown and not arguments.erase_unknown:
        _print(found.epochs, found.states, found.unknown, is_done=False, in_json=arguments.json)
        one, why = next(iter(found.unknown.items()))
        hint = (
            "Where it can be mended, mend it: put a file back that was lost, or run this where the modules of the "
            "query are. Otherwise give --erase-unknown, which erases it, too"
        )
        raise StateError(
            f"whether the key is in {one} cannot be found out ({why})",
            hint=KEY_HINT if eraser.keys_not_given else hint,
        )
    return found


def _print(
    epochs: frozenset[Epoch], states: int, unknown: dict[str, str], *, is_done: bool, in_json: bool
) -> None:
    is_nothing = not (epochs or states or unknown)
    said: dict[str, Any] = {
        "erased": is_done and not is_nothing,
        "epochs": sorted(epochs),
        "states": states,
        "unknown": unknown,
    }
    if in_json:
        print(json.dumps(said, indent=1))
        return
    if is_nothing:
        print("the archive has nothing of the key, of this operator")
        return
    for what, why in unknown.items():
        print(f"cannot be looked into: {what}: {why}")
    listed = ", ".join(map(str, said["epochs"])) or "none"
    done = "erased" if is_done else "to erase"
    print(f"{done}: epochs, of all instances: {listed}; what {states} states have of the key, or may have")
    if not is_done:
        print("nothing is erased yet: --yes does it")
