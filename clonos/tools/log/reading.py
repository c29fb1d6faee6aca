"""What lies at a place: a causal log store, a sink's write-ahead log, or a dead letter.

Everything is opened for reading only, also while its owner is at work. What is wrong is collected and never hides the
rest: a log is meaningful up to the damage, and the user wants to see that much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from clonos.errors import ConfigurationError, LogConflict, LogCorrupt
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.causal_log import CausalLog, Segment
from clonos.protocol.recovery.causal.delta import decode_delta
from clonos.protocol.recovery.causal.determinant import Kind, Step
from clonos.protocol.recovery.causal.determinant_codec import chunk_at, decode_steps
from clonos.sinks.sink_wal import segment_path, segments
from clonos.sinks.wal_format import Tail, scan
from clonos.storage import dead_letters
from clonos.storage.dead_letters import DeadLetter
from clonos.storage.log_store import LogStore

STORE, AHEAD, LETTER = "causal log store", "sink's write-ahead log", "dead letter"
_OPENINGS = (Kind.BOUNDARY, Kind.ORDER, Kind.TIMER, Kind.CHECKPOINT)


@dataclass(slots=True)
class Found:
    """What was read, and what was wrong with it."""

    kind: str
    path: Path
    own: CausalLog | None = None
    received: dict[Origin, CausalLog] = field(default_factory=dict)
    elided: dict[Origin, LogOffset] = field(default_factory=dict)  # how far logs reach that were kept back
    cursors: dict[int, int] = field(default_factory=dict)  # channel -> last position made visible
    letter: DeadLetter | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, log: CausalLog, start: LogOffset, data: bytes, what: str) -> None:
        try:
            log.merge(start, data)
        except LogConflict as error:
            self.problems.append(f"{what}: {error.message}")

    def take_delta(self, raw: bytes, what: str) -> None:
        try:
            entries = decode_delta(raw)
        except LogCorrupt as error:
            self.problems.append(f"{what}: {error.message}")
            return
        for entry in entries:
            if entry.data is None:
                self.elided[entry.origin] = max(self.elided.get(entry.origin, LOG_BEGIN), entry.end)
            else:
                log = self.received.setdefault(entry.origin, CausalLog())
                self.take(log, entry.start, entry.data, f"{what}, log of {entry.origin}")

    def check(self) -> None:
        """Decode every step; the own log has no holes."""
        logs = [("the own log", self.own)] if self.own is not None else []
        logs += [(f"the log of {origin}", log) for origin, log in sorted(self.received.items())]
        for what, log in logs:
            assert log is not None
            stretches = list(contiguous(log))
            for start, data in stretches:
                self.problems += [f"{what}: {problem}" for problem in read_steps(start, data).problems]
            for (start, data), (after, _) in pairwise(stretches):
                missing = f"{what} lacks offsets {start + len(data)}..{after}"
                # What an instance upstream has truncated before it was handed on is not lost.
                (self.problems if log is self.own else self.notes).append(missing)


@dataclass(slots=True)
class Steps:
    """The steps of a contiguous piece of a log."""

    steps: list[Step]
    problems: list[str]
    begins: LogOffset  # where the first step does; what lies before belongs to a step that began earlier


def contiguous(log: CausalLog) -> Iterator[Segment]:
    """The log's pieces, joined where they touch."""
    joined: list[bytes] = []
    first = at = LOG_BEGIN
    for start, data in log:
        if joined and start != at:
            yield first, b"".join(joined)
            joined = []
        if not joined:
            first = start
        joined.append(data)
        at = log_after(start, data)
    if joined:
        yield first, b"".join(joined)


def read_steps(start: LogOffset, data: bytes) -> Steps:
    """As many steps as can be believed."""
    problems: list[str] = []
    ends: list[int] = []
    begins: int | None = None
    at = 0
    while at < len(data):
        try:
            entries, end = chunk_at(data, at)
        except LogCorrupt as error:
            problems.append(f"offset {start + at}: {error.message}")
            break
        if begins is None and entries and entries[0] in _OPENINGS:
            begins = at
        ends.append(at := end)
    if begins is None:
        return Steps([], problems, LogOffset(start + at))
    misfit: str | None = None
    first = LogOffset(start + begins)
    steps: list[Step] = []
    while not steps and ends and ends[-1] > begins:
        try:
            steps = decode_steps(data[begins : ends[-1]], first)
        except LogCorrupt as error:  # chunks that are sound and do not fit together
            misfit = error.message
            ends.pop()
    return Steps(steps, [misfit, *problems] if misfit is not None else problems, first)


def read(path: Path) -> Found:
    """Find out what is there and read it. Raises ConfigurationError where it is nothing of ours."""
    if path.is_dir() and (path / "CURRENT").exists():
        return _read_store(path)
    if path.is_dir() and segments(path):
        return _read_ahead(path, [segment_path(path, number) for number in segments(path)])
    if path.is_file():
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == dead_letters.MAGIC:
            return _read_letter(path)
        if magic == b"CLWA":
            return _read_ahead(path, [path])
    raise ConfigurationError(
        f"{path} is no causal log, write-ahead log or dead letter",
        hint="Give <data>/logs/<node>/<instance>, a sink's <log>/<query>/<node>-<instance>, or a .letter file",
    )


def _read_store(path: Path) -> Found:
    found = Found(STORE, path, own=CausalLog())
    assert found.own is not None
    with LogStore.read_only(str(path)) as reader:
        for start, data in reader.own():
            found.take(found.own, start, data, "the own log")
        for number, raw in enumerate(reader.deltas()):
            found.take_delta(raw, f"received delta {number}")
        found.problems += reader.corrupt
    found.check()
    return found


def _read_ahead(path: Path, files: Iterable[Path]) -> Found:
    found = Found(AHEAD, path)
    numbered = list(files)
    for file in numbered:
        try:
            scanned = scan(file.read_bytes())
        except FileNotFoundError:
            found.notes.append(f"{file} was trimmed meanwhile")
            continue
        for number, record in enumerate(scanned.records):
            found.cursors.update(record.cursors)
            for raw in record.deltas:
                found.take_delta(raw, f"{file.name}, record {number}")
        if scanned.tail is Tail.CORRUPT or (scanned.tail is Tail.TORN and file != numbered[-1]):
            found.problems.append(f"{file.name} is damaged at byte {scanned.length}")
        elif scanned.tail is Tail.TORN:
            found.notes.append(
                f"{file.name} ends in an append that is not finished, at byte {scanned.length}"
            )
    found.check()
    return found


def _read_letter(path: Path) -> Found:
    found = Found(LETTER, path)
    try:
        found.letter = dead_letters.decode(path.read_bytes(), str(path))
        found.own = CausalLog()
        found.own.merge(LOG_BEGIN, found.letter.recorded)
    except LogCorrupt as error:
        found.problems.append(error.message)
    found.check()
    return found
