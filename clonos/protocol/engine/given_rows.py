"""How many rows each call of a user's function gives, as the operator notes it while it runs.

The rows of a bundle, or of timers that fire together, come out of an operator as one list. Where it is asked for, an
operator that gives its function one record or one timer at a time tells behind each how many rows there are so far:
that is one number in an array. On the fast path it puts a mark (None) behind the rows of each call instead, which takes
a third of that, and has the marks taken out behind the bundle. What an operator does not tell is not guessed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate, chain, compress, repeat
from operator import is_not, sub
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from clonos.protocol.frontier import Column

if TYPE_CHECKING:
    from clonos.protocol.operator import Services

_NUMBERS: Final = "I"
_FEW: Final = 256  # below, lists are faster than arrays
_ascending = array(_NUMBERS, range(1, 4097))


def rows_told(services: Services) -> Callable[[int], None] | None:
    """What is told, behind each call of the function, how many rows all of the bundle, or of the timers, have given so
    far; None where nothing asks."""
    given = services.given_rows
    return None if given is None else given.begin()


class GivenRows:
    """Of the bundle, the timers, or the end of an epoch that the operator was given last."""

    def __init__(self) -> None:
        self._ends: array[int] | Column | None = None
        self._forms = b""

    def forget(self) -> None:
        """The operator is about to be given the next ones."""
        self._ends, self._forms = None, b""

    # ------------------------------------------------------------ operators tell

    def begin(self) -> Callable[[int], None]:
        """As `rows_told`, which operators use."""
        ends = self._ends = array(_NUMBERS)
        return ends.append

    def take_marks(self, made: list[Any], calls: int) -> None:
        """`made` has a mark behind the rows of each of so many calls. None is left in it."""
        if len(made) == 2 * calls and made[1::2] == [None] * calls:
            del made[1::2]
            self.one_each(calls)
            return
        if len(made) < _FEW:
            found = [at for at, row in enumerate(made) if row is None]
            self._ends = [at - before for before, at in enumerate(found)]
            made[:] = [row for row in made if row is not None]
            return
        is_row = bytes(map(is_not, made, repeat(None)))
        marks = np.flatnonzero(np.frombuffer(is_row, np.uint8) == 0)
        self._ends = marks - np.arange(len(marks))
        made[:] = compress(made, is_row)

    def one_each(self, calls: int) -> None:
        """So many calls have given one row each."""
        self._ends = _first(calls)

    def derive(self, forms: bytes) -> None:
        """Each row that the function gave has become so many, which stand together: forms of that row, or none."""
        if forms.count(1) == len(forms):
            return
        self._forms = forms.translate(None, b"\0")
        if self._ends is None:
            return
        if len(forms) < _FEW:
            upto = [0, *accumulate(forms)]
            self._ends = [upto[end] for end in self._ends]
        else:
            sums = np.zeros(len(forms) + 1, np.int64)
            np.cumsum(np.frombuffer(forms, np.uint8), out=sums[1:])
            self._ends = sums[np.asarray(self._ends)]

    # ------------------------------------------------------------- what was told

    @property
    def by_call(self) -> Column | None:
        """How many rows each call has given, in order; None where the operator has not told."""
        ends = self._ends
        if ends is None:
            return None
        if len(ends) < _FEW:
            return list(map(sub, ends, chain((0,), ends)))
        found = np.array(ends, np.int64)
        found[1:] -= found[:-1].copy()
        return found

    @property
    def gave_one_each(self) -> bool:
        """Whether each call that was told has given one row."""
        ends = self._ends
        if not isinstance(ends, array):
            return False
        calls = len(ends)
        return not calls or (ends[-1] == calls and ends == _first(calls))

    @property
    def forms(self) -> bytes:
        """How many of the rows, one behind the other, are forms of one row each; empty where each is itself."""
        return self._forms


def _first(count: int) -> array[int]:
    """The numbers up to one."""
    if count > len(_ascending):
        _ascending.extend(range(len(_ascending) + 1, count + 1))
    return _ascending[:count]
