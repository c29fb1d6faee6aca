"""Which epochs of an instance a question is about, and which of these the archive does not have.

What is asked for by `--from` and `--to` is answered or said to be lacking, wherever in between it is. Where no
beginning is said, what retention has dropped is not asked for.

At a time an instance had ended the last epoch that is there of those that had, unless others that are not there may
have ended since: the archive may have been off for a while, and files get lost. Where the log goes on behind them as it
was before, nothing was done in epochs that are not there.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from clonos.archive.gaps import ArchiveGaps
from clonos.archive.reading import ArchivedInstance
from clonos.errors import ConfigurationError
from clonos.protocol.archive.episode import Episode
from clonos.protocol.archive.missing import MissingEpochs
from clonos.protocol.epoch_run import run_said, runs_of
from clonos.protocol.ids import FIRST_EPOCH, Epoch, epoch_after, epoch_before

NOT_THERE: Final = "not in the archive"
_FEW: Final = 5
"""Runs of epochs that a message names."""


@dataclass(frozen=True, slots=True)
class AbsentEpochs:
    """From one to another, that were asked for."""

    first: Epoch
    last: Epoch
    why: str

    @classmethod
    def of(cls, missing: MissingEpochs) -> AbsentEpochs:
        return cls(missing.first, missing.last, f"{NOT_THERE}: {missing.why}")

    def __str__(self) -> str:
        return f"{run_said(self.first, self.last)}: {self.why}"


@dataclass(frozen=True, slots=True)
class AskedEpochs:
    """Of one instance. `between`: the first and the last of those that it has; None where it has none that has
    ended."""

    between: tuple[Epoch, Epoch] | None
    absent: Sequence[AbsentEpochs] = ()


def asked_epochs(
    instance: ArchivedInstance,
    gaps: ArchiveGaps,
    since: str | None,
    upto: str | None,
    *,
    first: Epoch | None = None,
) -> AskedEpochs:
    """What lies between two bounds, each of which may be left open. Without `since` it begins with `first`; unless that
    is said, with all that there is, but for what retention has left of what cannot be repeated any more; what is known
    to be lost is lacking then, and what may have been dropped is not. Raises ConfigurationError."""
    missing = gaps.of(instance)
    between = None
    if instance.epochs:
        between = epochs_between(instance, since, upto, first=_first(instance) if first is None else first)
    if between is None:
        lost = missing if since is not None else [each for each in missing if each.absence.is_certain]
        return AskedEpochs(None, [*map(AbsentEpochs.of, lost)])
    begin, end = between
    absent: list[AbsentEpochs] = []
    if since is None:
        lost = [each for each in missing if each.absence.is_certain and first is None]
        absent += _absent(FIRST_EPOCH, begin, lost)
    elif since.isdigit():
        absent += _absent(Epoch(int(since)), begin, missing, otherwise=NOT_THERE)
    else:
        after = gaps.first_after(microseconds(since), begin)
        hole = _hole_before(instance, begin)
        absent += _absent(min(after, hole), begin, missing, otherwise=NOT_THERE if hole < begin else "")
    if upto is None:
        absent += [AbsentEpochs.of(each) for each in missing if _is_lost(each, end)]
    return AskedEpochs(between, absent)


def _first(instance: ArchivedInstance) -> Epoch:
    """Where retention has dropped nothing, the query's first epoch, whether it can be repeated or not."""
    return FIRST_EPOCH if FIRST_EPOCH in instance.epochs else instance.first


def _is_lost(missing: MissingEpochs, behind: Epoch) -> bool:
    return missing.first > behind and missing.absence.is_certain


def _absent(
    first: Epoch, before: Epoch, missing: Sequence[MissingEpochs], otherwise: str = ""
) -> Iterator[AbsentEpochs]:
    """From `first` to the last one `before`: those of which it is known why they are missing, and others, if there is
    something to say of them."""
    at = first
    for each in missing:
        begin, end = max(each.first, at), min(each.last, epoch_before(before))
        if begin > end:
            continue
        if otherwise and at < begin:
            yield AbsentEpochs(at, epoch_before(begin), otherwise)
        yield AbsentEpochs.of(replace(each, first=begin, last=end))
        at = epoch_after(end)
    if otherwise and at < before:
        yield AbsentEpochs(at, epoch_before(before), otherwise)


def epochs_between(
    instance: ArchivedInstance, since: str | None, upto: str | None, *, first: Epoch
) -> tuple[Epoch, Epoch] | None:
    """Of those that the instance has, from one to another, of which each may be left open; None where none has ended.
    Without `since` it begins with `first`. Raises ConfigurationError."""
    last = instance.last_ended if upto is None else epoch_at(instance, upto)
    if last is None:
        return None
    if since is None:
        return first, last
    begin = _epoch_from(instance, since)
    if upto is not None and begin > last and not _is_in_order(since, upto):
        raise ConfigurationError(f"what is asked for begins with {since}, and ends with {upto} before that")
    return begin, last


def _is_in_order(since: str, upto: str) -> bool:
    """Whether it may be that no epoch of an instance ended between these, which are in order."""
    return not since.isdigit() and not upto.isdigit() and microseconds(since) <= microseconds(upto)


def epoch_at(instance: ArchivedInstance, at: str) -> Epoch:
    """An epoch by its number, or the last one that had ended at a time. Raises ConfigurationError."""
    if at.isdigit():
        if int(at) not in instance.epochs:
            raise _nothing(instance, f"epoch {at}")
        return Epoch(int(at))
    if (found := _ended_at(instance, at)) is None:
        raise _nothing(instance, f"what ended before {at}")
    return found


def epoch_with_state(instance: ArchivedInstance, at: str) -> Epoch:
    """As `epoch_at`; also one of which nothing but the state at its end is there."""
    if at.isdigit() and Epoch(int(at)) in instance.state_epochs:
        return Epoch(int(at))
    return epoch_at(instance, at)


def _ended_at(instance: ArchivedInstance, at: str) -> Epoch | None:
    """At a time; None where none had. Raises ConfigurationError where that is not known."""
    limit = microseconds(at)
    last = next(
        (epoch for epoch in sorted(instance.epochs, reverse=True) if _had_ended(instance, epoch, limit)), None
    )
    if last is not None:
        _check_behind(instance, last, at)
    return last


def _had_ended(instance: ArchivedInstance, epoch: Epoch, limit: float) -> bool:
    return instance.left_at(epoch) <= limit and instance.has_ended(epoch)


def _check_behind(instance: ArchivedInstance, epoch: Epoch, at: str) -> None:
    """Raises ConfigurationError where epochs behind this one may have ended, too, and are not there."""
    following = instance.epoch_behind(epoch)
    behind = epoch_after(instance.committed) if following is None else following
    if behind <= epoch_after(epoch) or (following is not None and _goes_on(instance, epoch, following)):
        return
    missing = run_said(epoch_after(epoch), epoch_before(behind))
    raise ConfigurationError(
        f"which epoch {instance} had ended at {at} is not known: of {missing}, behind epoch {epoch}, nothing is in the "
        f"archive, and they may have ended by then",
        hint=f"Ask by the number of an epoch, as {epoch}. `clonos archive list` shows which there are",
    )


def _hole_before(instance: ArchivedInstance, epoch: Epoch) -> Epoch:
    """The first one of those before an epoch that are not there, and in which something was done; else the epoch."""
    before = max((each for each in instance.epochs if each < epoch), default=None)
    return epoch if before is None or _goes_on(instance, before, epoch) else epoch_after(before)


def _goes_on(instance: ArchivedInstance, before: Epoch, behind: Epoch) -> bool:
    """Whether one epoch begins where the other one ended. Where that cannot be read, it is not known."""
    one, other = instance.episode(before), instance.episode(behind)
    return isinstance(one, Episode) and isinstance(other, Episode) and other.log_start == one.ended.log_end


def _epoch_from(instance: ArchivedInstance, at: str) -> Epoch:
    """The first epoch that is this one or behind it, or that had not ended at this time."""
    if at.isdigit():
        epochs = [each for each in instance.epochs if each >= int(at)]
    else:
        limit = microseconds(at)
        epochs = [each for each in instance.epochs if instance.left_at(each) > limit]
    if not epochs:
        raise _nothing(instance, f"anything from {at} on")
    return min(epochs)


def microseconds(at: str) -> float:
    """A time as it is given. Raises ConfigurationError where it is none."""
    try:
        moment = dt.datetime.fromisoformat(at)
    except ValueError:
        raise ConfigurationError(
            f"{at!r} is neither an epoch nor a time", hint="As in 17, or 2026-11-29T10:15:00"
        ) from None
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC).timestamp() * 1_000_000


def _nothing(instance: ArchivedInstance, what: str) -> ConfigurationError:
    runs = [run_said(*run) for run in runs_of(instance.epochs)]
    there = ", ".join(runs if len(runs) <= _FEW else [*runs[:2], "...", runs[-1]]) or "nothing"
    return ConfigurationError(
        f"the archive does not have {what} of {instance}",
        hint=f"It has {there}. `clonos archive list` shows all",
    )
