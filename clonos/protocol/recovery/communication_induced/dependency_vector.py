"""The dependency vector: what an instance knows of the checkpoints that its state depends on.

It rides along with every block that one operator's instance sends to another. Its size grows with the number of
operators' instances.

    u8 0xC1 (format version 1) | varint lamport | varint n | n varints: checkpoints | bits: taken | bits: greater

Each of the two bit sets has (n + 7) // 8 bytes, little-endian; bit k is of instance k. The block has the checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from clonos.errors import LogCorrupt
from clonos.protocol.varint import append_varint, read_varint

VERSION: Final = 0xC1


@dataclass(frozen=True, slots=True)
class DependencyVector:
    """Instances are numbered through (`instance_numbering`). A bit set is an int whose bit k is of instance k."""

    lamport: int
    """The logical clock, which counts checkpoints along the longest chain of rows."""
    checkpoints: Sequence[int]
    """By instance, the number of its last checkpoint that the state depends on."""
    taken: int
    """The instances of which a chain of rows has come from behind that checkpoint in which a checkpoint was taken."""
    greater: int
    """The instances of whose logical clocks this one is known to be ahead."""

    def to_bytes(self) -> bytes:
        out = bytearray((VERSION,))
        append_varint(out, self.lamport)
        append_varint(out, len(self.checkpoints))
        for number in self.checkpoints:
            append_varint(out, number)
        size = _bit_set_size(len(self.checkpoints))
        return bytes(out) + self.taken.to_bytes(size, "little") + self.greater.to_bytes(size, "little")

    @classmethod
    def from_bytes(cls, raw: bytes) -> DependencyVector:
        """Raises LogCorrupt."""
        if not raw or raw[0] != VERSION:
            raise LogCorrupt("a dependency vector is empty or of another format version")
        lamport, at = read_varint(raw, 1)
        count, at = read_varint(raw, at)
        checkpoints = []
        for _ in range(count):
            number, at = read_varint(raw, at)
            checkpoints.append(number)
        size = _bit_set_size(count)
        if len(raw) != at + 2 * size:
            raise LogCorrupt("a dependency vector is cut off or too long")
        taken = int.from_bytes(raw[at : at + size], "little")
        greater = int.from_bytes(raw[at + size :], "little")
        if (taken | greater) >> count:
            raise LogCorrupt("a dependency vector is about instances beyond its own number of them")
        return cls(lamport, checkpoints, taken, greater)


def _bit_set_size(count: int) -> int:
    return (count + 7) // 8
