"""What a function closes over."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def contents_of(function: FunctionType) -> list[Any]:
    """The values of its free variables, in their order; None for one that has not been set yet."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # of a variable that has not been set yet
            found.append(None)
    return found
