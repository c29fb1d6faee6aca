"""Epochs one behind the other, told by the first and the last of them."""

from __future__ import annotations

from collections.abc import Iterable

from clonos.protocol.ids import Epoch, epoch_after

EpochRun = tuple[Epoch, Epoch]


def runs_of(epochs: Iterable[Epoch]) -> list[EpochRun]:
    """These, in order, as few runs as they make."""
    found: list[EpochRun] = []
    for epoch in sorted(epochs):
        if found and epoch == epoch_after(found[-1][1]):
            found[-1] = found[-1][0], epoch
        else:
            found.append((epoch, epoch))
    return found


def run_said(first: Epoch, last: Epoch) -> str:
    """To be read."""
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"
