"""What a snapshot says of an instance beside its keyed state and timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clonos.protocol.engine.epoch_counts import Counted
from clonos.protocol.ids import LOG_BEGIN, Epoch, LogOffset, Origin, OutputNumber
from clonos.protocol.ports import Row
from clonos.protocol.recovery.causal.history_mark import HistoryMark


@dataclass(slots=True)
class InstanceSnapshot:
    """Everything of an instance but its keyed state and timers.

    What follows `pending` is for resuming inside an epoch (`clonos.protocol.line.recovery_line`,
    `clonos.protocol.recovery.causal.resumption`); `began` and `arrived` for telling a repetition from an identity
    that is used again (`clonos.protocol.frontier`), empty where an older version, which did not keep them, wrote the
    snapshot.
    """

    epoch: Epoch
    covered: dict[int, int]
    emitted: OutputNumber
    log_offset: LogOffset
    epoch_log_offset: LogOffset  # where the epoch that this snapshot belongs to began
    boundary: Epoch
    random_state: tuple[Any, ...] | None  # None where no step is ever repeated: another process draws anew
    watermark: int | None
    pending: list[tuple[int, int, Row]] = field(default_factory=list)  # channel, position, row
    sent: dict[int, OutputNumber] = field(default_factory=dict)  # by destination, the last row's number
    received: dict[Origin, LogOffset] = field(default_factory=dict)  # how far it has been sent others' logs
    log_digest: int = 0  # CRC-32 of the own log from `epoch_log_offset` on
    awaited_input: dict[int, int] = field(default_factory=dict)  # by channel, what has still to come again
    program: str = ""  # the version of the function that wrote the state; "" for the first of the checkpoint
    log: bytes = b""  # the end of the own log: what perhaps no other holder was shown
    live_since: LogOffset = LOG_BEGIN
    """From where on in the log the incarnation that took it went its own way; `LOG_BEGIN` where it holds no log."""
    epoch_watermark: int | None = None  # with which the epoch began
    gathered: bool = False  # the epoch's end has been processed
    holds: bool = False  # what the epoch's records are gathered in, and is not part of this
    claims: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """By channel, what its sender has said of event time, and whether in this epoch (`engine.channel_watermarks`)."""
    input_watermarks: dict[int, int] = field(default_factory=dict)  # by node
    output_watermarks: list[tuple[int | None, int | None]] = field(default_factory=list)
    """By reader with event time (`engine.output_watermarks`); an older version did not keep it."""
    records_watermarks: bool = False  # the epoch's steps say how the watermark moves
    began: dict[int, int] = field(default_factory=dict)  # by channel the last position of the epochs before
    arrived: dict[int, int] = field(default_factory=dict)  # by channel the last position that has come
    counted: Counted = field(default_factory=Counted)  # in its epoch; an older version did not count
    kept_of_policy: bytes = b""  # what the recovery keeps in it (`recovery.policy`)
    channel_state: list[bytes] = field(default_factory=list)
    """Records that belong to it, too, in the runtime's form; where it is read they are behind those of `pending`."""
    channel_reached: Mapping[int, int] = field(default_factory=dict)  # by channel, the last position of these
    unkept: Mapping[int, OutputNumber] = field(default_factory=dict)
    """By destination, the last row that its log of what was sent lacks (`uncoordinated.sent_log_truncation`)."""
    origin: Origin | None = None  # whose it is; an older version did not say it
    serves_upto: Epoch | None = None
    """Of an archived state from which a key was erased, the last epoch that may be repeated from it."""

    @property
    def history(self) -> HistoryMark:
        """What tells the history that it was taken in from others."""
        return HistoryMark(self.epoch_log_offset, self.log_offset, self.log_digest)

    @property
    def reached(self) -> dict[int, int]:
        """By channel the last position that is in it: consumed, or waiting."""
        pending = {channel: position for channel, position, _ in self.pending}
        return {**self.covered, **pending, **self.channel_reached}

    def wrong_place(self, origin: Origin) -> str:
        """Why it does not stand for this instance; "" where it does, as far as it says whose it is."""
        if self.origin is None or self.origin == origin:
            return ""
        return f"it is of another instance, {self.origin.node}-{self.origin.instance}"

    def without_log(self) -> InstanceSnapshot:
        """For where the log is kept elsewhere, and goes from there when it has to."""
        return replace(self, log=b"", live_since=LOG_BEGIN)

    def resume(self, awaited_input: Mapping[int, int]) -> None:
        """It is where another attempt begins, to which the epoch comes again from its beginning."""
        self.awaited_input, self.arrived = dict(awaited_input), dict(self.began)


def still_awaited(awaited: Mapping[int, int], arrived: Mapping[int, int]) -> dict[int, int]:
    """What has not come again yet, where `arrived` is the last position to come by channel."""
    return {channel: upto for channel, upto in awaited.items() if arrived.get(channel, -1) < upto}
