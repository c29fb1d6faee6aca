"""The marks of records that processes died at, as a file of the host (`protocol.roles.crash_marks` has the rules)."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

from clonos.json_text import parsed_json
from clonos.protocol.ids import RecordId
from clonos.protocol.roles.crash_marks import InHand, Mark, Marks
from clonos.protocol.roles.death import Death
from clonos.storage.durable_files import replace_file


class CrashMarkFile:
    """The file of one instance. It is written for every record while the instance's replica goes carefully."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Marks | None:
        try:
            said = parsed_json(self._path.read_bytes())
            marks = {
                RecordId(int(channel), int(position)): Mark(
                    row, bool(in_timers), tuple(Death(**one) for one in deaths), bool(passed_over)
                )
                for channel, position, row, in_timers, deaths, passed_over in said["marks"]
            }
            in_hand = None
            if said["in_hand"] is not None:
                channel, position, pid = said["in_hand"]
                in_hand = InHand(RecordId(int(channel), int(position)), int(pid))
            return Marks(str(said["start"]), in_hand, marks)
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            return None

    def write(self, marks: Marks) -> None:
        said = {
            "start": marks.start,
            "in_hand": (*marks.in_hand.record, marks.in_hand.pid) if marks.in_hand is not None else None,
            "marks": [
                (
                    *record,
                    mark.row,
                    mark.in_timers,
                    [asdict(death) for death in mark.deaths],
                    mark.passed_over,
                )
                for record, mark in marks.marks.items()
            ],
        }
        with contextlib.suppress(OSError):  # a full disk is for others to report
            # Not synced, for it is written for every record: marks are about processes that die, not hosts.
            replace_file(self._path, json.dumps(said).encode(), durable=False)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
