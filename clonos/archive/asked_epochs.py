"""Epochs as they are asked for: by their numbers, or by times.

At a time an instance had ended the last epoch that is there of those that had, unless others that are not there may
have ended since: the archive may have been off for a while, and files get lost. Where the log goes on behind them as it
was before, nothing was done in epochs that are not there.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from clonos.archive.reading import ArchivedInstance
from clonos.errors import ConfigurationError
from clonos.protocol.archive.episode import Episode
from clonos.protocol.epoch_run import run_said, runs_of
from clonos.protocol.ids import Epoch, epoch_after, epoch_before

_FEW: Final = 5
"""Runs of epochs that a message names."""


def epochs_between(
    instance: ArchivedInstance, since: str | None, upto: str | None, *, first: Epoch | None = None
) -> tuple[Epoch, Epoch] | None:
    """From one to another, of which each may be left open; None where none has ended. They are not before `first`: the
    first that can be repeated, unless it is said. Raises ConfigurationError."""
    last = instance.last_ended if upto is None else epoch_at(instance, upto)
    first = instance.first if first is None else first
    return None if last is None else (epoch_from(instance, since, first), last)


def epoch_at(instance: ArchivedInstance, at: str) -> Epoch:
    """An epoch by its number, or the last one that had ended at a time. Raises ConfigurationError."""
    if at.isdigit():
        if int(at) not in instance.epochs:
            raise _nothing(instance, f"epoch {at}")
        return Epoch(int(at))
    if (found := _ended_at(instance, at, _microseconds(at))) is None:
        raise _nothing(instance, f"what ended before {at}")
    return found


def epoch_from(instance: ArchivedInstance, at: str | None, first: Epoch) -> Epoch:
    """The first epoch that is not before `first`, and is this one or behind it, or that had not ended at this time."""
    epochs = sorted(each for each in instance.epochs if each >= first)
    if at is not None and at.isdigit():
        epochs = [each for each in epochs if each >= int(at)]
    elif at is not None:
        limit = _microseconds(at)
        epochs = [each for each in epochs if max(name.written_at for name in instance.epochs[each]) > limit]
    if not epochs:
        raise _nothing(instance, f"anything from {at} on")
    before = max((each for each in instance.epochs if each < epochs[0]), default=None)
    if at is not None and not at.isdigit() and before is not None:
        _check_behind(instance, before, at)
    return epochs[0]


def _microseconds(at: str) -> float:
    try:
        moment = dt.datetime.fromisoformat(at)
    except ValueError:
        raise ConfigurationError(
            f"{at!r} is neither an epoch nor a time", hint="As in 17, or 2026-11-29T10:15:00"
        ) from None
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp() * 1_000_000


def epoch_with_state(instance: ArchivedInstance, at: str) -> Epoch:
    """As `epoch_at`; also one of which nothing but the state at its end is there."""
    if at.isdigit() and Epoch(int(at)) in instance.state_epochs:
        return Epoch(int(at))
    return epoch_at(instance, at)


def _ended_at(instance: ArchivedInstance, at: str, limit: float) -> Epoch | None:
    """None where none had. `at` is the time as it was given, `limit` in microseconds since 1970. Raises
    ConfigurationError where that is not known."""
    last = next(
        (epoch for epoch in sorted(instance.epochs, reverse=True) if _had_ended(instance, epoch, limit)), None
    )
    if last is not None:
        _check_behind(instance, last, at)
    return last


def _had_ended(instance: ArchivedInstance, epoch: Epoch, limit: float) -> bool:
    return max(name.written_at for name in instance.epochs[epoch]) <= limit and instance.has_ended(epoch)


def _check_behind(instance: ArchivedInstance, epoch: Epoch, at: str) -> None:
    """Raises ConfigurationError where epochs behind this one may have ended, too, and are not there."""
    following = min((each for each in instance.epochs if each > epoch), default=None)
    behind = epoch_after(instance.committed) if following is None else following
    if behind <= epoch_after(epoch) or (following is not None and _goes_on(instance, epoch, following)):
        return
    missing = run_said(epoch_after(epoch), epoch_before(behind))
    raise ConfigurationError(
        f"which epoch {instance} had ended at {at} is not known: of {missing}, behind epoch {epoch}, nothing is in the "
        f"archive, and they may have ended by then",
        hint=f"Ask by the number of an epoch, as {epoch}. `clonos archive list` shows which there are",
    )


def _goes_on(instance: ArchivedInstance, before: Epoch, behind: Epoch) -> bool:
    """Whether one epoch begins where the other one ended. Where that cannot be read, it is not known."""
    one, other = instance.episode(before), instance.episode(behind)
    return isinstance(one, Episode) and isinstance(other, Episode) and other.log_start == one.ended.log_end


def _nothing(instance: ArchivedInstance, what: str) -> ConfigurationError:
    runs = [run_said(*run) for run in runs_of(instance.epochs)]
    there = ", ".join(runs if len(runs) <= _FEW else [*runs[:2], "...", runs[-1]]) or "nothing"
    return ConfigurationError(
        f"the archive does not have {what} of {instance}",
        hint=f"It has {there}. `clonos archive list` shows all",
    )
