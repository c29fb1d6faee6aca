"""Whether what an archive has of an instance can be repeated, for `clonos archive verify`. Every epoch that there is
has an answer: that it was repeated, or why it could not be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clonos.archive.compared_states import state_that_differs
from clonos.archive.reading import ArchivedInstance, desk_for
from clonos.archive.repeating import StretchOfEpochs, repeated_from_states, repeated_to
from clonos.protocol.archive.episode import Lacking
from clonos.protocol.archive.missing import Absence, MissingEpochs
from clonos.protocol.epoch_run import run_said, runs_of
from clonos.protocol.ids import NO_EPOCH, Epoch
from clonos.storage.working_folders import working_folder


def verified(
    instance: ArchivedInstance, missing: Sequence[MissingEpochs], epoch: Epoch | None
) -> Iterator[dict[str, Any]]:
    """Epoch by epoch, or one and what has to be repeated before it; with what it lacks that others have. Behind what
    cannot be repeated it goes on with the next state."""
    head = {"operator": instance.operator, "instance": instance.origin.instance}
    for result in _all(instance, missing) if epoch is None else _one(instance, missing, epoch):
        yield {**head, **result}
    if instance.last_ended is None or (epoch is not None and epoch not in instance.epochs):
        return
    with working_folder("desk") as folder:
        for why in instance.damaged_states(Path(folder)):
            yield {**head, "repeated": False, "why": why}


def _all(instance: ArchivedInstance, missing: Sequence[MissingEpochs]) -> Iterator[dict[str, Any]]:
    yield from map(_not_there, missing)
    last = instance.last_ended
    if last is None:
        is_open = bool(instance.epochs) and not any(each.absence.is_certain for each in missing)
        why = "no epoch that has ended is in the archive"
        yield {"repeated": False, "why": why, **({"open": True} if is_open else {})}
    else:
        yield from _answers(instance, repeated_from_states(instance, last))
    for epoch in sorted(each for each in instance.epochs if each > (NO_EPOCH if last is None else last)):
        why = f"epoch {epoch}: it has not ended, as far as the archive has it"
        yield {"epoch": epoch, "repeated": False, "why": why, "open": True}


def _one(
    instance: ArchivedInstance, missing: Sequence[MissingEpochs], epoch: Epoch
) -> Iterator[dict[str, Any]]:
    if epoch not in instance.epochs:
        known = [f": {each.why}" for each in missing if epoch in each]
        there = ", ".join(run_said(*run) for run in runs_of(instance.epochs)) or "no epoch"
        yield {
            "repeated": False,
            "why": "".join([f"epoch {epoch} is not in the archive", *known, f". It has {there}"]),
        }
        return
    with desk_for(instance) as desk:
        found = (each for each, _ in repeated_to(instance, epoch, desk))
        yield from _answers(instance, [StretchOfEpochs(epoch, epoch, desk, found)])


def _answers(instance: ArchivedInstance, stretches: Iterable[StretchOfEpochs]) -> Iterator[dict[str, Any]]:
    """Of every epoch of the stretches, once."""
    told: set[Epoch | str | None] = set()  # what comes again, from an earlier state
    for stretch in stretches:
        before, why = 0, None
        for found in stretch.repeated:
            if isinstance(found, Lacking):
                why = found
                if found.why not in told:
                    yield _not_repeated(found)
                told |= {found.epoch, found.why}
                continue
            if found.epoch not in told:
                differs = state_that_differs(instance, found.epoch, stretch.desk)
                records = stretch.desk.records - before
                well = {"epoch": found.epoch, "repeated": True, "records": records}
                yield well if differs is None else _not_repeated(differs)
            told.add(found.epoch)
            before = stretch.desk.records
        for epoch in sorted(each for each in instance.epochs if stretch.first <= each <= stretch.last):
            if epoch not in told:
                told.add(epoch)
                yield _not_repeated(_behind(instance, epoch, why))


def _behind(instance: ArchivedInstance, epoch: Epoch, why: Lacking | None) -> Lacking:
    """Why an epoch was not come to, behind one that could not be repeated."""
    own = instance.episode(epoch)
    if isinstance(own, Lacking):
        return replace(own, why=f"epoch {epoch}: {own.why}", epoch=epoch)
    if (cut_off := instance.cut_off(epoch)) is not None:
        return cut_off
    before = "one" if why is None or why.epoch is None else f"epoch {why.epoch}"
    was = "was erased" if why is not None and why.is_erased else "cannot be repeated"
    return Lacking(
        f"epoch {epoch}: it comes behind {before}, which {was}, and there is no state from between to begin with",
        is_before=why is not None
        and why.is_before
        and not any(each < epoch for each in instance.state_epochs),
        epoch=epoch,
    )


def is_well(results: Sequence[dict[str, Any]]) -> bool:
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


def line(result: dict[str, Any]) -> str:
    """To be read."""
    place = f"{result['operator']}[{result['instance']}]"
    if result["repeated"]:
        return f"{place} epoch {result['epoch']}: {result['records']:,} records, repeated to the byte"
    if result.get("erased"):
        return f"{place} {result['why']}"
    if result.get("before") or result.get("open"):
        return f"{place}: not looked at: {result['why']}"
    return f"{place}: CANNOT BE REPEATED: {result['why']}"


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
