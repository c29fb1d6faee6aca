"""What the senders of an instance say of event time, and the watermark that follows from it.

A sender *claims* a time: behind what it has sent comes no earlier row, but for late ones. The claim of a channel is
the last one that came on it, that of an input (all channels of one node) is the minimum over its channels, and the
instance's watermark is the minimum over its inputs. See T. Akidau et al., "The Dataflow Model", VLDB 2015, section
2.3, and "Watermarks in Stream Processing Systems", VLDB 2021.

A channel that brings nothing must not hold all others back. In micro-batch one is *idle* that has brought nothing in
the batch, and the watermark moves when the batch ends. In real time one is idle that has brought nothing for a while,
and an input waits that long for channels that have not spoken yet. That while is the time in which the instance has
listened: between two epochs, and while the function is busy, nothing could be heard. An input of which all channels
are idle stays where it is, as a stream of Spark's with `withWatermark` does, unless it was said when it is to be idle
as a whole. Where all are idle none holds another one back, and the latest claim counts.

When claims come, and which channels are idle, depends on the moment. So nothing is computed from them in a replay: the
watermark that an instance goes by is recorded with the step that moves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from clonos.protocol.ids import NodeId, channel_origin

IDLE_AFTER: Final = 10_000_000
"""Microseconds. A broker that fails over is silent for longer than a partition that has no records should hold."""
MOMENT: Final = 200_000
"""Microseconds: an instance that does not ask how far event time has come for longer was not listening."""


@dataclass(frozen=True, slots=True)
class EventInput:
    """A node whose rows have event time for this instance. `channels` is how many there are, None where that is not
    known before they speak; an input that brings nothing for `idle_after` microseconds is idle (None: never)."""

    node: NodeId
    channels: int | None = None
    idle_after: int | None = None


@dataclass(slots=True)
class _Input:
    """One input as it stands. What is by a clock is so by that of this incarnation."""

    what: EventInput
    claims: dict[int, int] = field(default_factory=dict)
    spoke: set[int] = field(default_factory=set)  # channels that have claimed something in this epoch
    heard: dict[int, int] = field(default_factory=dict)  # by channel, in time listened
    first_heard: int | None = None  # in time listened
    silent_since: int | None = None  # by the clock
    reached: int | None = None  # it never goes back

    def is_idle(self, now: int, listened: int, *, realtime: bool) -> bool:
        """As a whole. In micro-batch it is not while it brings something in a batch, however long that takes."""
        limit = self.what.idle_after
        if limit is None:
            return False
        if realtime:
            return listened - max(self.heard.values(), default=0) >= limit
        return not self.spoke and self.silent_since is not None and now - self.silent_since >= limit

    def advance(self, listened: int, *, realtime: bool) -> None:
        if realtime and self._waits(listened):
            return
        active = [self.claims[channel] for channel in self._active(listened, realtime=realtime)]
        if active:
            self._come_to(min(active))
        elif realtime and self.claims:
            self._come_to(max(self.claims.values()))

    def _come_to(self, moment: int) -> None:
        self.reached = moment if self.reached is None else max(self.reached, moment)

    def _active(self, listened: int, *, realtime: bool) -> Iterable[int]:
        if not realtime:
            return self.spoke
        limit = self._channel_limit
        return [channel for channel, at in self.heard.items() if listened - at < limit]

    def _waits(self, listened: int) -> bool:
        """For channels that have not spoken yet."""
        if self.what.channels is not None and len(self.claims) >= self.what.channels:
            return False
        first = self.first_heard
        return self.reached is None and first is not None and listened - first < self._channel_limit

    @property
    def _channel_limit(self) -> int:
        return IDLE_AFTER if self.what.idle_after is None else self.what.idle_after


class ChannelWatermarks:
    """See the module. Times are in microseconds."""

    def __init__(self, inputs: Iterable[EventInput]) -> None:
        self._inputs = {each.node: _Input(each) for each in inputs}
        self._listened = 0
        self._asked_at: int | None = None

    def __bool__(self) -> bool:
        """Whether the instance has event time."""
        return bool(self._inputs)

    def begin_epoch(self, now: int, *, realtime: bool) -> None:
        """An epoch begins that is not the one before, which may have ended in a replay."""
        self._listen(now)
        for each in self._inputs.values():
            if not realtime:
                each.advance(self._listened, realtime=False)
            each.spoke.clear()
            each.silent_since = now if each.silent_since is None else each.silent_since

    def claim(self, claims: Mapping[int, int], now: int) -> None:
        """By channel, what senders have said."""
        self._listen(now)
        for channel, moment in claims.items():
            of = self._inputs.get(channel_origin(channel).node)
            if of is not None:
                of.claims[channel] = max(moment, of.claims.get(channel, moment))
                of.spoke.add(channel)
                of.heard[channel], of.silent_since = self._listened, now
                of.first_heard = self._listened if of.first_heard is None else of.first_heard

    def reached(self, now: int, *, realtime: bool) -> int | None:
        """The watermark that follows from what is known, None where there is none yet."""
        self._listen(now)
        for each in self._inputs.values():
            each.advance(self._listened, realtime=realtime)
        counted = [
            each for each in self._inputs.values() if not each.is_idle(now, self._listened, realtime=realtime)
        ]
        if not counted:
            return max(
                (each.reached for each in self._inputs.values() if each.reached is not None), default=None
            )
        reached = [each.reached for each in counted]
        return None if None in reached else min(moment for moment in reached if moment is not None)

    def _listen(self, now: int) -> None:
        if self._asked_at is not None:
            self._listened += min(max(now - self._asked_at, 0), MOMENT)
        self._asked_at = now

    # -------------------------------------------------------------- snapshots

    @property
    def kept(self) -> dict[int, tuple[int, bool]]:
        """For a snapshot: by channel its claim, and whether it has spoken in this epoch."""
        return {
            channel: (moment, channel in each.spoke)
            for each in self._inputs.values()
            for channel, moment in each.claims.items()
        }

    @property
    def kept_inputs(self) -> dict[int, int]:
        """For a snapshot: how far each input has come."""
        return {node: each.reached for node, each in self._inputs.items() if each.reached is not None}

    def restore(self, kept: Mapping[int, tuple[int, bool]], inputs: Mapping[int, int], now: int) -> None:
        for channel, (moment, spoke) in kept.items():
            of = self._inputs.get(channel_origin(channel).node)
            if of is not None:
                of.claims[channel], of.heard[channel] = moment, self._listened
                of.first_heard, of.silent_since = self._listened, now
                if spoke:
                    of.spoke.add(channel)
        for node, moment in inputs.items():
            if node in self._inputs:
                self._inputs[NodeId(node)].reached = moment
