"""Which segments of an archive go into one file, so that a query with short epochs does not leave millions of files.

Only those of epochs that are over go, so that none is added to a file later. A segment that is large stays by itself:
together with others it would only take longer to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

from clonos.protocol.archive.stored_segment import SegmentName
from clonos.protocol.ids import Epoch

FEWEST: Final = 64
"""Segments of a file."""
MOST: Final = 4096
MOST_BYTES: Final = 4 << 20
"""To read one epoch all of its file is read."""
LARGE: Final = 256 << 10


def to_compact(
    segments: Mapping[SegmentName, int], compacted: Iterable[range], upto: Epoch, fewest: int = FEWEST
) -> list[list[SegmentName]]:
    """The segments of each file that is to be made, in order, all those of an epoch in one file.

    `segments` are those in files of their own, with their bytes; `compacted` are the epochs of the files that have
    several; up to `upto` epochs are over. Fewer than `fewest` wait for others. A segment that was written late, of an
    epoch within such a file, stays.
    """
    oldest = min(segments, default=None)
    taken = [each for each in compacted if oldest is not None and each.stop > oldest.epoch]
    found: list[list[SegmentName]] = []
    size = 0
    for epoch, of_epoch in groupby(sorted(segments), key=lambda name: name.epoch):
        names = list(of_epoch)
        bytes_of_epoch = sum(segments[name] for name in names)
        if epoch > upto or bytes_of_epoch > LARGE or any(epoch in each for each in taken):
            continue
        is_full = not found or len(found[-1]) + len(names) > MOST or size + bytes_of_epoch > MOST_BYTES
        if is_full or any(found[-1][-1].epoch < each.start < epoch for each in taken):
            found.append([])
            size = 0
        found[-1] += names
        size += bytes_of_epoch
    return [each for each in found if len(each) >= fewest]
