"""The own log of an instance, and how far what has been done with it reaches.

The log is append-only. Its marks are log offsets: where the epoch began, how far the log was sent downstream with rows
(or shown to the conduit), how far another holder has it, and, in the `SaveQueue`, how far it is saved. While the
instance repeats a recorded log, the log that it builds must equal the recorded one byte for byte (invariant I2).

Where nothing is ever repeated the log is empty, or has marks of checkpoints (`causal.checkpoint_marks`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from clonos.errors import DivergenceError
from clonos.protocol.counters import LAST_LONG, used_up
from clonos.protocol.engine.instance_place import InstancePlace
from clonos.protocol.engine.instance_snapshot import InstanceSnapshot
from clonos.protocol.engine.save_queue import SaveQueue
from clonos.protocol.ids import LOG_BEGIN, LogOffset, Origin, log_after
from clonos.protocol.recovery.causal.causal_log import Segment
from clonos.protocol.recovery.causal.checkpoint_marks import MARK
from clonos.protocol.recovery.causal.delta_journal import DeltaJournal
from clonos.protocol.recovery.causal.history_mark import HistoryMark
from clonos.protocol.recovery.causal.recording import Recording
from clonos.protocol.recovery.causal.replayer import HINT


class InstanceLog:
    """The log as far as this incarnation has built it, and `recording`, what is known of it beyond."""

    def __init__(
        self,
        origin: Origin,
        journal: DeltaJournal,
        save_queue: SaveQueue,
        place: InstancePlace,
        *,
        is_kept: bool = True,
        marks_checkpoints: bool = False,
    ) -> None:
        """Where it is not kept, nothing is ever repeated from it, and it has checkpoint marks at most."""
        self._is_kept = is_kept
        self._marks_checkpoints = marks_checkpoints
        self._mark_is_due = marks_checkpoints
        self.recording = Recording()
        self.end = LOG_BEGIN
        self.epoch_start = LOG_BEGIN
        self.epoch_digest = 0  # CRC-32 of the log from `epoch_start` on
        self.handed_on = LOG_BEGIN  # rows that have left carried the log up to here
        self._unsent_start = LOG_BEGIN
        self._unsent: list[bytes] = []
        self._origin = origin
        self._journal = journal
        self._save_queue = save_queue
        self._place = place

    def restore(
        self, snapshot: InstanceSnapshot | None, own_before: Iterable[Segment], recorded: bytes
    ) -> None:
        """The log ends where it did in the snapshot; `recorded` is known of what followed, and repeated."""
        if snapshot is not None:
            self.end = snapshot.log_offset
            self.epoch_start, self.epoch_digest = snapshot.epoch_log_offset, snapshot.log_digest
        self._unsent_start = self.end
        self._save_queue.begin(self.end)
        history = snapshot.history if snapshot is not None and self._journal.elides else None
        for start, data in own_before:
            ends_there = history is not None and log_after(start, data) == history.ends
            self._journal.append_own(self._origin, start, data, history if ends_there else None)
        self.recording = Recording(self.end, recorded)
        # Other holders may have handed it back, and a replica that comes before it is repeated asks none.
        if recorded:
            self._save_queue.add_own(recorded)

    def begin_epoch(self) -> None:
        self.epoch_start, self.epoch_digest = self.end, 0

    def end_recording(self) -> None:
        """Nothing is known of what follows."""
        self.recording = Recording(self.end)

    def append(self, chunk: bytes) -> None:
        """The log goes on. Raises DivergenceError where something else is recorded there."""
        if not chunk or not self._is_kept:
            return
        start = self.end
        stop = log_after(start, chunk)
        known = self.recording.between(start, stop)
        if known and known != chunk:
            raise DivergenceError(
                f"the replay differs from the recording: what was asked for before log offset {stop} is not what was "
                "recorded there",
                where=self._place.of_row(0),
                hint=HINT,
            )
        if not known:
            self._save_queue.add_own(chunk)
        self._unsent.append(chunk)
        self._extend(chunk)

    def begin_checkpoint(self) -> None:
        """What is sent from now on is in the next one."""
        self._mark_is_due = self._marks_checkpoints

    def mark_checkpoint(self) -> None:
        """Rows are about to be made that are in the next checkpoint. The mark goes to their readers alone: the instance
        repeats nothing, so neither its store nor its conduit needs it."""
        if not self._mark_is_due:
            return
        self._mark_is_due = False
        self._extend(MARK)
        self._unsent_start = self.end

    def _extend(self, chunk: bytes) -> None:
        start = self.end
        self.end = log_after(start, chunk)
        if self.end > LAST_LONG:
            raise used_up("the offset in the causal log", self._place.where())
        self.epoch_digest = zlib.crc32(chunk, self.epoch_digest)
        mark = HistoryMark(self.epoch_start, self.end, self.epoch_digest) if self._journal.elides else None
        self._journal.append_own(self._origin, start, chunk, mark)

    def append_recorded(self, upto: LogOffset) -> bool:
        """Append what is known up to an offset as it stands; whether there is any."""
        rest = self.recording.between(self.end, upto)
        self.append(rest)
        return bool(rest)

    def extend_recording(self, start: LogOffset, log: bytes) -> None:
        """More of the log is known. Raises as `Recording.extend` does."""
        fresh = self.recording.extend(start, log, self.end, self._place.where)
        if fresh:
            self._save_queue.add_own(fresh)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def unsent(self) -> Segment:
        """What no row has been sent with."""
        return self._unsent_start, b"".join(self._unsent)

    def take_unsent(self) -> Segment:
        """As `unsent`, which counts as sent from now on."""
        unsent = self.unsent
        self._unsent_start, self._unsent = self.end, []
        return unsent

    def since(self, offset: LogOffset | None) -> bytes:
        """The log of this epoch from an offset on, where that is wanted and all of it is held."""
        start = self.end if offset is None else max(offset, self.epoch_start)
        log = self._journal.own_since(self._origin, start) if start < self.end else b""
        return log if len(log) == self.end - start else b""
