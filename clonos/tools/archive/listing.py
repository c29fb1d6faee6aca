"""Prints which epochs of which instances an archive has, and which it lacks, for `clonos archive list`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from clonos.archive.gaps import ArchiveGaps
from clonos.archive.reading import ArchivedInstance
from clonos.protocol.archive.missing import Absence
from clonos.protocol.epoch_run import run_said, runs_of
from clonos.tools.status.text import table
from clonos.values.readable import moment

_HEAD: Final = ("operator", "instance", "epochs", "from", "to", "segments", "bytes", "states at the end of")
_FEW: Final = 4


def print_list(instances: Sequence[ArchivedInstance], gaps: ArchiveGaps, *, in_json: bool) -> None:
    """A line for each instance, and behind these one for each gap; one JSON document, if that is wanted."""
    said = [_listed(each, gaps) for each in instances]
    if in_json:
        print(json.dumps(said, indent=1))
        return
    print("\n".join(table(_HEAD, map(_row, said))))
    for each in said:
        for gap in each["missing"]:
            first, last = gap["epochs"]
            print(f"{each['operator']}[{each['instance']}] lacks {run_said(first, last)}: {gap['why']}")


def _listed(instance: ArchivedInstance, gaps: ArchiveGaps) -> dict[str, Any]:
    """What may still end is no gap here."""
    times = [name.written_at for name in instance.segments]
    return {
        "operator": instance.operator,
        "instance": instance.origin.instance,
        "epochs": [min(instance.epochs), max(instance.epochs)] if times else [],
        "runs": runs_of(instance.epochs),
        "missing": [
            {"epochs": [each.first, each.last], "why": each.why}
            for each in gaps.of(instance)
            if each.absence is not Absence.NOT_ENDED
        ],
        "from": moment(min(times)) if times else None,
        "to": moment(max(times)) if times else None,
        "segments": len(times),
        "bytes": instance.bytes,
        "states": instance.state_epochs,
    }


def _row(said: dict[str, Any]) -> list[str]:
    return [
        said["operator"],
        str(said["instance"]),
        _few([f"{first}..{last}" if first < last else str(first) for first, last in said["runs"]]),
        said["from"] or "-",
        said["to"] or "-",
        str(said["segments"]),
        f"{said['bytes']:,}",
        _few([str(each) for each in said["states"]]),
    ]


def _few(texts: list[str]) -> str:
    shown = texts if len(texts) <= _FEW else [*texts[:2], "...", texts[-1]]
    return ", ".join(shown) or "-"
