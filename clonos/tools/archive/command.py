"""The command `clonos archive`: what is kept, and whether it can be repeated."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.archive.desk import Desk
from clonos.archive.gaps import ArchiveGaps
from clonos.archive.reading import ArchivedInstance, ArchivedQuery, desk_for
from clonos.archive.repeating import repeated_from_states, repeated_to
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.archive.missing import Absence, MissingEpochs
from clonos.protocol.ids import Epoch, epoch_after
from clonos.storage.working_folders import working_folder
from clonos.tools.archive import find as find_command, forget as forget_command
from clonos.tools.archive.listing import print_list


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
    gaps = None if arguments.what == "find" else ArchiveGaps.of_query(query)
    instances = query.instances(arguments.operator)
    query.check_archive(instances)
    if arguments.what == "list":
        assert gaps is not None
        print_list(instances, gaps, in_json=arguments.json)
        return 0
    query.load_programs()
    if gaps is None:
        return find_command.run(query, instances, arguments)
    chosen = [each for each in instances if arguments.instance in (None, each.origin.instance)]
    results = []
    for each in chosen:
        for result in _verified(each, gaps.of(each), arguments.epoch):
            results.append(result)
            if not arguments.json:
                print(_line(result), flush=True)
    if arguments.json:
        print(json.dumps(results, indent=1))
    return 0 if results and _is_well(results) else 1


def _is_well(results: list[dict[str, Any]]) -> bool:
    """What is from before the archive need not be repeated, if anything of the instance can be; what was erased need
    not be at all, nor what may not have ended."""
    some = {(each["operator"], each["instance"]) for each in results if each["repeated"]}
    return any(each["repeated"] or each.get("erased") for each in results) and all(
        each["repeated"]
        or each.get("erased")
        or each.get("open")
        or (each.get("before") and (each["operator"], each["instance"]) in some)
        for each in results
    )


def _verified(
    instance: ArchivedInstance, missing: Sequence[MissingEpochs], epoch: Epoch | None
) -> Iterator[dict[str, Any]]:
    """Epoch by epoch. What is at the end of the archive, and has not ended, is not asked for. Behind what cannot be
    repeated it goes on with the next state."""
    head = {"operator": instance.operator, "instance": instance.origin.instance}
    upto = epoch if epoch is not None else instance.last_ended
    if epoch is None:
        for each in missing:
            yield {**head, **_not_there(each)}
    if upto is None or upto not in instance.epochs:
        why = "no epoch that has ended is in the archive"
        if upto is not None:
            known = [f": {each.why}" for each in missing if upto in each]
            why = "".join([f"epoch {upto} is not in the archive", *known])
        is_open = (
            upto is None and bool(instance.epochs) and not any(each.absence.is_certain for each in missing)
        )
        yield {**head, "repeated": False, "why": why, **({"open": True} if is_open else {})}
        return
    if epoch is None:
        for result in _from_states(instance, repeated_from_states(instance, upto), upto):
            yield {**head, **result}
    else:
        with desk_for(instance) as desk:
            for result in _from_states(instance, repeated_to(instance, epoch, desk), epoch):
                yield {**head, **result}
    with working_folder("desk") as folder:
        for why in instance.damaged_states(Path(folder)):
            yield {**head, "repeated": False, "why": why}


def _from_states(
    instance: ArchivedInstance, repeated: Iterable[tuple[Episode | Lacking, Desk]], upto: Epoch
) -> Iterator[dict[str, Any]]:
    before, place = 0, None
    told: set[Epoch | str] = set()  # what comes again, from an earlier state
    erased: Epoch | None = None  # behind which others may be, that it passes over to the next state
    for found, desk in repeated:
        if erased is not None and found.epoch is not None:
            yield from _erased_behind(instance, erased, found.epoch)
        erased = None
        if desk is not place:
            before, place = 0, desk
        if isinstance(found, Lacking):
            if found.is_erased:
                erased = found.epoch
            if found.why not in told:
                yield _not_repeated(found)
            told.add(found.why)
        else:
            if found.epoch not in told:
                yield {"epoch": found.epoch, "repeated": True, "records": desk.records - before}
            told.add(found.epoch)
            before = desk.records
    if erased is not None:
        yield from _erased_behind(instance, erased, epoch_after(upto))


def _erased_behind(instance: ArchivedInstance, epoch: Epoch, before: Epoch) -> Iterator[dict[str, Any]]:
    for each in sorted(instance.epochs):
        if epoch < each < before:
            found = instance.episode(each)
            if isinstance(found, Lacking) and found.is_erased:
                yield _not_repeated(replace(found, epoch=each, why=f"epoch {each}: {found.why}"))


def _not_repeated(lacking: Lacking) -> dict[str, Any]:
    return {
        **({} if lacking.epoch is None else {"epoch": lacking.epoch}),
        "repeated": False,
        "why": lacking.why,
        **({"before": True} if lacking.is_before else {}),
        **({"erased": True} if lacking.is_erased else {}),
    }


def _not_there(missing: MissingEpochs) -> dict[str, Any]:
    said = {
        "missing": [missing.first, missing.last],
        "repeated": False,
        "why": f"of {missing} other instances have more: {missing.why}",
    }
    if missing.absence is Absence.DROPPED:
        return {**said, "before": True}
    return said if missing.absence.is_certain else {**said, "open": True}


def _line(result: dict[str, Any]) -> str:
    place = f"{result['operator']}[{result['instance']}]"
    if result["repeated"]:
        return f"{place} epoch {result['epoch']}: {result['records']:,} records, repeated to the byte"
    if result.get("erased"):
        return f"{place} {result['why']}"
    if result.get("before") or result.get("open"):
        return f"{place}: not looked at: {result['why']}"
    return f"{place}: CANNOT BE REPEATED: {result['why']}"
