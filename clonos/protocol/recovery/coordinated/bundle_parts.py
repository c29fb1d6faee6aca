"""A bundle with markers, cut where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from clonos.protocol.frontier import numbers_of
from clonos.protocol.ingestion import within
from clonos.protocol.ports import Bundle
from clonos.protocol.recovery.marker import Marker

Span: TypeAlias = tuple[int, int]
"""Records of a bundle: from one on, and up to one that is not among them."""


def between_markers(bundle: Bundle) -> Iterator[Span | Marker]:
    """The records of a bundle and its markers, in order. No span is empty."""
    at = 0
    for marker in bundle.markers:
        if at < marker.behind:
            yield at, marker.behind
        at = marker.behind
        yield marker
    if at < len(bundle.rows):
        yield at, len(bundle.rows)


def part_of(bundle: Bundle, spans: Sequence[Span]) -> Bundle:
    """Of a bundle the records in `spans`, which are in order, without what it says of event time. Nothing else rides
    along where there are markers."""
    if len(spans) == 1:
        begin, end = spans[0]
        channels, positions, rows = (
            bundle.channels[begin:end],
            bundle.positions[begin:end],
            bundle.rows[begin:end],
        )
    else:
        all_channels, all_positions = numbers_of(bundle.channels), numbers_of(bundle.positions)
        channels = [each for begin, end in spans for each in all_channels[begin:end]]
        positions = [each for begin, end in spans for each in all_positions[begin:end]]
        rows = [each for begin, end in spans for each in bundle.rows[begin:end]]
    return Bundle(channels, positions, rows, ingested=list(within(bundle.ingested, spans)))
