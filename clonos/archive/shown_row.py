"""A row that an operator gave, as its readers got it, with the output that it is of by the names that users know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clonos.protocol.side_output import OutputName


@dataclass(frozen=True, slots=True)
class ShownRow:
    """`side_output` is MAIN of a row of the main one; `through` is which `where` and `select` behind it have made the
    row, as they were written. TIMESTAMPs are instants."""

    output: OutputName  # as the program has it
    side_output: OutputName
    through: str
    columns: dict[str, Any]

    @property
    def place(self) -> dict[str, str]:
        """Which output it is of, as JSON has it: nothing of the main one."""
        said = {"output": str(self.side_output), "through": self.through}
        return {name: each for name, each in said.items() if each}

    @property
    def place_text(self) -> str:
        """The same to be read."""
        through = f"through {self.through}" if self.through else ""
        return ", ".join(filter(None, [self.side_output, through]))
