"""Side outputs: an operator may give rows of several kinds, each with a schema and readers of its own.

Its rows are numbered and recorded as one sequence, whichever output they are of, so that a replay repeats all of them.
A row of a side output says by its type which one it is of; all others are of the main output.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Final, NewType

OutputName = NewType("OutputName", str)
MAIN: Final = OutputName("")


class SideRow(tuple[Any, ...]):
    """A row of a side output."""

    __slots__ = ()
    output: ClassVar[OutputName]


@lru_cache(maxsize=512)
def side_row_type(output: OutputName) -> type[SideRow]:
    """Of the rows of one side output."""
    return type("SideRow", (SideRow,), {"__slots__": (), "output": output})


def output_said(operator: str, output: OutputName) -> str:
    """An output of an operator, in messages. Behind a slash stands by which expressions it is derived from another."""
    own, derived, _ = output.partition("/")
    said = f"{operator}, side output {own}" if own else operator
    return f"an expression behind {said}" if derived else said


def output_of(row: tuple[Any, ...]) -> OutputName:
    return row.output if isinstance(row, SideRow) else MAIN
