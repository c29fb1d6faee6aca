"""A record that ends every process that takes it.

A replica that dies takes its reason with it. After a death that may be the function's doing, the next replica goes
carefully until it has got past the first bundle that nobody has finished: it takes one record at a time and writes down
which, before it does. Found there by its successors, a record that has ended two processes that way is *poison*: it is
not run a third time. What becomes of it is the operator's policy (`on_poison`).

Only deaths that may be the record's doing count: not those that the server or the query wanted. A process that died
while timers fired, after the record was done, says nothing against the record; it is counted, and no letter can help.

The mark belongs to one start of the query; another start, perhaps with a mended function, knows nothing of it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from clonos.errors import PoisonRecord, Where
from clonos.storage.durable_files import replace_file
from clonos.wire.messages import Hello

REPORTED = 70  # exit code of a process that has told its conduit why it ends
DEADLY = 2
_OWN_DOING = ("exit", "signal", "oom", "hang")
_LONGEST = 4000
_TOLD = ("kind", "signal", "code", "message", "at", "pid", "max_rss_kib", "stderr")

Record: TypeAlias = tuple[int, int]
"""Channel and position."""


@dataclass(slots=True)
class _Mark:
    """What is held against a record."""

    tries: int = 0
    row: int | None = None  # a checksum of the record's content, where that is known
    in_timers: bool = False  # the last process died after the record itself was done
    deaths: list[dict[str, Any]] = field(default_factory=list)


class CrashMarks:
    """The marks of one instance: records that were being run when a process died, and how often."""

    def __init__(self, path: Path, start: str) -> None:
        self.careful = False
        self._path = path
        self._start = start  # names the start of the query
        self._last = "nothing is known of its end"
        self._marks: dict[Record, _Mark] = {}
        self._running: Record | None = None

    def warn(self, hello: Hello, previous: Mapping[str, Any] | None) -> None:
        """A connection begins; `previous` is how the process before this one died, if one did."""
        left = self._read()
        self._running = None
        if previous is not None:
            self._last = f"{previous.get('message', '')}\n{previous.get('stderr', '')}".strip()[:_LONGEST]
            if left is not None:
                self._judge(self._marks[left], previous)
        self.careful = bool(self._marks) or (
            not hello.fresh and previous is not None and _may_be_its_doing(hello, previous)
        )

    def _judge(self, mark: _Mark, previous: Mapping[str, Any]) -> None:
        """A process died with this record in hand."""
        death = {name: previous.get(name) for name in _TOLD}
        death["stderr"] = str(death["stderr"] or "")[-_LONGEST:]
        if any(death["pid"] == known["pid"] and death["at"] == known["at"] for known in mark.deaths):
            return
        if _own_doing(previous):
            mark.deaths.append(death)
        else:
            mark.tries -= 1
        self._write()

    def about_to_run(self, where: Where, row: int | None = None) -> bool:
        """Write the record down; the one before it is behind us. False where it is known too well: it must not run.

        `row` is a checksum of its content: in a history that was given up, and repeated otherwise, another record may
        have had the position.
        """
        record = _record(where)
        if self._running is not None:
            del self._marks[self._running]
            self._running = None
        mark = self._marks.setdefault(record, _Mark())
        if row is not None:
            if mark.row not in (None, row):
                mark = self._marks[record] = _Mark()
            mark.row = row
        if mark.tries >= DEADLY:
            return False
        self._running = record
        mark.tries += 1
        mark.in_timers = False
        self._write()
        return True

    def timers_fire(self) -> None:
        """The record is done; what dies now is not its doing."""
        if self._running is not None and not self._marks[self._running].in_timers:
            self._marks[self._running].in_timers = True
            self._write()

    def by_itself(self, where: Where) -> bool:
        """Whether it was the record that was deadly, and not timers that fire after it."""
        return not self._marks[_record(where)].in_timers

    def deaths(self, where: Where) -> list[dict[str, Any]]:
        """How processes died with the record in hand, as far as that is known."""
        return self._marks[_record(where)].deaths

    def poison(self, where: Where, advice: str = "Mend the function or the record") -> PoisonRecord:
        """The error that names the record."""
        tries = self._marks[_record(where)].tries
        return PoisonRecord(
            f"the function has ended {tries} processes in a row at the same record",
            where=where,
            hint=f"{advice}; the query then goes on from there. The last end: {self._last}",
        )

    def blame(self, where: Where) -> None:
        """The function is stuck at a record."""
        if where.channel is not None and where.position is not None and self._running is None:
            self.about_to_run(where)

    def passed(self) -> None:
        """The bundle in doubt is behind us."""
        self.careful = False
        self._marks, self._running = {}, None
        self._path.unlink(missing_ok=True)

    def _read(self) -> Record | None:
        """Read the marks; the record that a process had in hand."""
        self._marks = {}
        try:
            said = json.loads(self._path.read_bytes())
            if said["start"] != self._start:
                return None
            marks = {
                (int(channel), int(position)): _Mark(int(tries), row, bool(in_timers), list(deaths))
                for channel, position, tries, row, in_timers, deaths in said["marks"]
            }
            running = None if said["running"] is None else (int(said["running"][0]), int(said["running"][1]))
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            return None
        self._marks = marks
        return running if running in marks else None

    def _write(self) -> None:
        marks = [
            (*record, mark.tries, mark.row, mark.in_timers, mark.deaths)
            for record, mark in self._marks.items()
        ]
        said = {"start": self._start, "running": self._running, "marks": marks}
        with contextlib.suppress(OSError):  # a full disk is for others to report
            # Not synced, for it is written for every record: marks are about processes that die, not hosts.
            replace_file(self._path, json.dumps(said).encode(), durable=False)


def _record(where: Where) -> Record:
    assert where.channel is not None and where.position is not None
    return where.channel, where.position


def _own_doing(previous: Mapping[str, Any]) -> bool:
    return previous.get("kind") in _OWN_DOING and previous.get("code") != REPORTED


def _may_be_its_doing(hello: Hello, previous: Mapping[str, Any]) -> bool:
    # Somebody's SIGKILL says nothing against the function, the second in a row may be its own.
    return _own_doing(previous) and (previous.get("signal") != "SIGKILL" or hello.fence.replacement > 1)
