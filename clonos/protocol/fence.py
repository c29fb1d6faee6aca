"""The fence: a number that rises with every incarnation of an instance, so that older ones are recognised and refused.

It has 128 bits and is compared as a whole:

    generation, 64 bits     the start of the query
    attempt, 48 bits        Spark's number of the task attempt, plus one
    replacement, 16 bits    how often the attempt's replica was replaced

None of the parts may reach into the one above it: a task attempt whose replacements are used up ends, and Spark starts
another. Attempts are counted from one, so that the number a generation begins with (`Fence.of(generation)`), to which a
start of the query raises the fences of the sinks, lies below every fence that one of its attempts will show.

Until now a fence had 64 bits (generation 16, attempt 32, replacement 16). What was written under such a one is read as
what it meant (`Fence.widened`).
"""

from __future__ import annotations

import re
from typing import Final, NewType

from clonos.errors import CounterExhausted, ProtocolError

GENERATION_BITS: Final = 64
ATTEMPT_BITS: Final = 48
REPLACEMENT_BITS: Final = 16
LAST_REPLACEMENT: Final = (1 << REPLACEMENT_BITS) - 1
FENCE_BYTES: Final = 16

Generation = NewType("Generation", int)
"""A start of the query, counted over all that a driver has led: the first is 1, and each has a number of its own."""
NO_GENERATION: Final = Generation(0)
"""Before the first start: no driver has led yet."""

_GENERATION_SHIFT: Final = ATTEMPT_BITS + REPLACEMENT_BITS
_ATTEMPT_MASK: Final = (1 << ATTEMPT_BITS) - 1
_TEXT: Final = re.compile(r"[0-9a-f]{32}")
_NARROW_GENERATION_SHIFT: Final = 48
_NARROW_ATTEMPT_MASK: Final = (1 << 32) - 1


class Fence(int):
    """See the module."""

    __slots__ = ()

    @classmethod
    def of(cls, generation: int, attempt: int = 0, replacement: int = 0) -> Fence:
        """Raises CounterExhausted where a part does not fit."""
        for name, value, bits in (
            ("generation", generation, GENERATION_BITS),
            ("task attempt", attempt, ATTEMPT_BITS),
            ("replacement", replacement, REPLACEMENT_BITS),
        ):
            if not 0 <= value < 1 << bits:
                raise CounterExhausted(
                    f"{name} {value} does not fit into the {bits} bits that a fence has for it",
                    hint="Stop the application and start it again: its task attempts are counted anew",
                )
        return cls(generation << _GENERATION_SHIFT | attempt << REPLACEMENT_BITS | replacement)

    @classmethod
    def first(cls, generation: Generation, task_attempt: int) -> Fence:
        """The first fence of the task attempt that Spark calls `task_attempt`."""
        return cls.of(generation, task_attempt + 1)

    @property
    def generation(self) -> Generation:
        return Generation(self >> _GENERATION_SHIFT)

    @property
    def attempt(self) -> int:
        return self >> REPLACEMENT_BITS & _ATTEMPT_MASK

    @property
    def replacement(self) -> int:
        return self & LAST_REPLACEMENT

    @property
    def is_last(self) -> bool:
        """Whether the task attempt has none after it."""
        return self.replacement == LAST_REPLACEMENT

    def next(self) -> Fence:
        """Of the next replacement in the same task attempt. Raises CounterExhausted after the last one."""
        return Fence.of(self.generation, self.attempt, self.replacement + 1)

    # ------------------------------------------------------------- written down

    @property
    def text(self) -> str:
        """32 hexadecimal digits: texts sort as fences do."""
        return f"{self:032x}"

    @classmethod
    def parse(cls, text: object) -> Fence:
        """Raises ProtocolError."""
        if not isinstance(text, str) or _TEXT.fullmatch(text) is None:
            raise ProtocolError(f"{text!r} is not a fence: it has 32 hexadecimal digits")
        return cls(int(text, 16))

    def pack(self) -> bytes:
        """16 bytes, big-endian: they sort as fences do."""
        return self.to_bytes(FENCE_BYTES, "big")

    @classmethod
    def unpack(cls, raw: bytes) -> Fence:
        """Raises ValueError."""
        if len(raw) != FENCE_BYTES:
            raise ValueError(f"a fence has {FENCE_BYTES} bytes, not {len(raw)}")
        return cls(int.from_bytes(raw, "big"))

    @classmethod
    def widened(cls, narrow: int) -> Fence:
        """What a fence of 64 bits meant."""
        return cls.of(
            narrow >> _NARROW_GENERATION_SHIFT,
            narrow >> REPLACEMENT_BITS & _NARROW_ATTEMPT_MASK,
            narrow & LAST_REPLACEMENT,
        )

    @property
    def narrowed(self) -> int:
        """As `widened` has found it."""
        return (
            self.generation << _NARROW_GENERATION_SHIFT | self.attempt << REPLACEMENT_BITS | self.replacement
        )


NO_FENCE: Final = Fence(-1)
"""Below every fence: where none was shown."""
LOWEST_FENCE: Final = Fence(0)
"""Below every fence that a task attempt shows: where none was raised yet."""


def generation_of(fence: Fence) -> Generation:
    """The start of the query that a fence is of."""
    return Generation(fence >> _GENERATION_SHIFT)


def generation_after(generation: Generation) -> Generation:
    """The next one."""
    return Generation(generation + 1)


def attempt_of(fence: Fence) -> int:
    """What all fences of one task attempt have in common, and those of no other: generation and attempt."""
    return fence >> REPLACEMENT_BITS


def of_same_attempt(fence: Fence, other: Fence) -> bool:
    """Whether two fences are of one task attempt.

    A snapshot inside an epoch is for replacements in the attempt that took it. A new attempt discards those of earlier
    ones, but one that a dead replica had sent to remote storage may appear later: its history need not be this one's.
    """
    return attempt_of(fence) == attempt_of(other)
