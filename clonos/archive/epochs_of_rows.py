"""In which epoch an instance has made a row, by how many it had made up to the end of each epoch.

Ends are searched by halves: one segment of each epoch on the way is read. Epochs may be damaged, or missing, or without
their end: which rows these have made may be known from those around them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from clonos.errors import LogCorrupt
from clonos.protocol.archive.episode import Episode, Lacking
from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.ids import FIRST_EPOCH, NO_OUTPUT, Epoch, OutputNumber, epoch_after
from clonos.protocol.recovery.causal.determinant_codec import decode_steps

LAST: Final = OutputNumber(1 << 63)
"""Behind every row."""


class EpochsOfInstance(Protocol):
    """What is asked of an instance."""

    @property
    def epochs(self) -> Mapping[Epoch, Sequence[SegmentName]]: ...
    def episode(self, epoch: Epoch) -> Episode | Lacking: ...
    def has_ended(self, epoch: Epoch) -> bool: ...
    def emitted(self, epoch: Epoch) -> OutputNumber | None: ...
    def read_emitted(self, epoch: Epoch) -> OutputNumber: ...


class EpochsOfRows:
    """See the module."""

    def __init__(self, instance: EpochsOfInstance) -> None:
        self._instance = instance
        self._begins: dict[Epoch, OutputNumber] = {}  # the last row before an epoch

    def made_in(self, number: OutputNumber) -> Epoch | Lacking:
        """The epoch in which an output row was made. Where it may have been made in one that is damaged or missing,
        nothing is said."""
        return self.placed(number)[0]

    def placed(self, number: OutputNumber) -> tuple[Epoch | Lacking, OutputNumber]:
        """The same, and a row from this one on up to which that holds."""
        if number <= NO_OUTPUT:
            return Lacking("no such row was made: an instance counts its rows from 1"), NO_OUTPUT
        epochs = sorted(self._instance.epochs)
        damaged = ""
        try:
            at = bisect_left(range(len(epochs)), number, key=partial(self._emitted_upto, epochs))
        except LogCorrupt as error:  # of an epoch on the way: those that can be read say it, too
            ends = [self._instance.emitted(epoch) for epoch in epochs]
            ended = (
                at for at, emitted in enumerate(ends) if emitted is not None and number <= emitted < LAST
            )
            last_is_open = bool(ends) and ends[-1] == LAST
            at = next(ended, len(epochs) - last_is_open)
            damaged = error.message if at > 0 and ends[at - 1] is None else ""
        why = f"it may have been made in an epoch of which the archive is damaged: {damaged}"
        if at == len(epochs):
            return Lacking(why if damaged else "its epoch is not in the archive"), LAST
        last = self._instance.read_emitted(epochs[at])
        is_behind_another = (
            at > 0 and epochs[at] == epoch_after(epochs[at - 1]) and self._instance.has_ended(epochs[at - 1])
        )
        before = NO_OUTPUT if is_behind_another and not damaged else self._last_before(epochs[at])
        if not isinstance(before, Lacking) and number > before:
            return epochs[at], last
        if not damaged:
            why = "its epoch is not in the archive" + (" any more" if at == 0 else "")
            if at > 0 and not self._instance.has_ended(epochs[at - 1]):
                why += f", or is epoch {epochs[at - 1]}, which has not ended, as far as the archive has it"
        if isinstance(before, Lacking):
            return replace(before, why=f"{why}, or it is epoch {epochs[at]}: {before.why}"), last
        return Lacking(why), before

    def _last_before(self, epoch: Epoch) -> OutputNumber | Lacking:
        """The number of the last row that was made before an epoch, whatever is there of those before: its log says how
        many were made in it. Why it does not, where it cannot be read."""
        if epoch == FIRST_EPOCH:
            return NO_OUTPUT
        if epoch not in self._begins:
            found = self._instance.episode(epoch)
            if isinstance(found, Lacking):
                return found
            made = sum(step.outputs for step in decode_steps(found.log, found.log_start))
            self._begins[epoch] = OutputNumber(found.ended.emitted_output - made)
        return self._begins[epoch]

    def _emitted_upto(self, epochs: Sequence[Epoch], at: int) -> OutputNumber:
        """The number of the last row up to the end of one of these epochs; where the archive has later ones, and not
        that end, at least that of the one before. So it never falls. Raises LogCorrupt."""
        is_last = at == len(epochs) - 1
        found = (self._instance.read_emitted(epoch) for epoch in reversed(epochs[: at + 1]))
        return next((emitted for emitted in found if emitted < LAST or is_last), NO_OUTPUT)
