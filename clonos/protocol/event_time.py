"""Event time: that a watermark never goes back, which records are late, and which timers fire.

How far event time has come is said by senders (`engine.channel_watermarks`), and recorded with the step that moves the
watermark. What is *late* is told by the watermark with which the epoch began, as Spark tells it by that of the batch
before: neither the order within an epoch nor the size of bundles makes a record late. The epoch begins with a recorded
step, and a snapshot inside it says what its watermark was, so a repeated epoch finds the same records late.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ended_by", "fire", "is_late", "later"]

_MILLISECOND = 1000


def later(watermark: int | None, reached: int | None) -> int | None:
    """A watermark never goes back."""
    if reached is None or (watermark is not None and reached <= watermark):
        return watermark
    return reached


def is_late(moment: int, epoch_watermark: int | None) -> bool:
    """Whether a record is late, by its event time in microseconds. Spark counts watermarks in milliseconds."""
    return epoch_watermark is not None and moment <= epoch_watermark // _MILLISECOND * _MILLISECOND


def ended_by(moment: int) -> int:
    """The first watermark by which `is_late` holds for a moment: what waits for it has waited long enough then."""
    return -(-moment // _MILLISECOND) * _MILLISECOND


def fire(operator: Any, timers: Any, upto: int | None, event: bool) -> list[Any]:
    """Timers of one family that are due, and those that become due by them; none before the first watermark."""
    produced: list[Any] = []
    while upto is not None and (due := timers.pop_due(upto)):
        produced += operator.timers(due, event)
    return produced
