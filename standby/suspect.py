"""A record that ends every process that takes it.

A replica that dies takes its reason with it. After a death that may be the function's doing, the next replica goes
carefully until it has got past the first bundle that nobody has finished: it takes one record at a time and writes down
which, before it does. Found there by its successors, a record that has ended two processes that way is *poison*: it is
not run a third time, and the query ends with its name.

The mark belongs to one start of the query; another start, perhaps with a mended function, knows nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from clonos.errors import PoisonRecord, Where
from clonos.wire.messages import Hello

REPORTED = 70  # exit code of a process that has told its conduit why it ends
DEADLY = 2
_OWN_DOING = ("exit", "signal", "oom", "hang")
_REPLACEMENT_MASK = 0xFFFF
_LONGEST = 4000


Record: TypeAlias = tuple[int, int]
"""Channel and position."""


class Suspect:
    """The marks of one instance: records that were being run when a process died, and how often."""

    def __init__(self, path: Path, start: str) -> None:
        self.careful = False
        self._path = path
        self._start = start  # names the start of the query
        self._last = "nothing is known of its end"
        self._marks: dict[Record, int] = {}
        self._running: Record | None = None

    def warn(self, hello: Hello, previous: Mapping[str, Any] | None) -> None:
        """A connection begins; `previous` is how the process before this one died, if one did."""
        self._marks, self._running = self._read(), None
        if previous is not None:
            self._last = f"{previous.get('message', '')}\n{previous.get('stderr', '')}".strip()[:_LONGEST]
        self.careful = bool(self._marks) or (
            not hello.fresh and previous is not None and _may_be_its_doing(hello, previous)
        )

    def about_to_run(self, where: Where) -> None:
        """Write the record down; the one before it is behind us. Raises PoisonRecord where it is known too well."""
        assert where.channel is not None and where.position is not None
        if self._running is not None:
            del self._marks[self._running]
        self._running = record = (where.channel, where.position)
        deaths = self._marks.get(record, 0)
        if deaths >= DEADLY:
            raise PoisonRecord(
                f"the function has ended {deaths} processes in a row at the same record",
                where=where,
                hint=f"Mend the function or the record; the query then goes on from there. The last end: {self._last}",
            )
        self._marks[record] = deaths + 1
        self._write()

    def blame(self, where: Where) -> None:
        """The function is stuck at a record."""
        if where.channel is not None and where.position is not None and self._running is None:
            with contextlib.suppress(PoisonRecord):
                self.about_to_run(where)

    def passed(self) -> None:
        """The bundle in doubt is behind us."""
        self.careful = False
        self._marks, self._running = {}, None
        self._path.unlink(missing_ok=True)

    def _read(self) -> dict[Record, int]:
        try:
            said = json.loads(self._path.read_bytes())
            if said["start"] != self._start:
                return {}
            return {(int(channel), int(position)): int(deaths) for channel, position, deaths in said["marks"]}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def _write(self) -> None:
        marks = [(*record, deaths) for record, deaths in self._marks.items()]
        fresh = self._path.with_suffix(".new")
        with contextlib.suppress(OSError):  # a full disk is for others to report
            fresh.write_text(json.dumps({"start": self._start, "marks": marks}))
            os.replace(fresh, self._path)


def _may_be_its_doing(hello: Hello, previous: Mapping[str, Any]) -> bool:
    if previous.get("kind") not in _OWN_DOING or previous.get("code") == REPORTED:
        return False
    # Somebody's SIGKILL says nothing against the function, the second in a row may be its own.
    return previous.get("signal") != "SIGKILL" or hello.fence & _REPLACEMENT_MASK > 1
