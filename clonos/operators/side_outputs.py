"""`ctx.side_output`: rows that a function gives beside those that it yields, each kind with a schema of its own.

They stand among the yielded rows in the order in which the function gave them (`clonos.protocol.side_output`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from clonos.errors import QueryDefinitionError
from clonos.operators.outputs import Outputs
from clonos.protocol.side_output import OutputName, SideRow, side_row_type

Row = tuple[Any, ...]


class SideOutputs:
    """Of one operator."""

    def __init__(self, schemas: Mapping[str, pa.Schema], operator: str) -> None:
        self._operator = operator
        self._kinds = {
            name: (Outputs(schema, f"{operator}, side output {name}"), side_row_type(OutputName(name)))
            for name, schema in schemas.items()
        }
        self._made: list[Row] = []

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def begin(self) -> list[Row]:
        """Where the rows of a bundle go, also those that the function yields."""
        self._made = []
        return self._made

    def into(self, made: list[Row]) -> None:
        """Rows go here from now on."""
        self._made = made

    def add(self, name: str, row: Any) -> None:
        """Raises InputError where it is no row of the output, QueryDefinitionError where there is no such output."""
        if name not in self._kinds:
            known = ", ".join(map(repr, self._kinds)) or "none"
            raise QueryDefinitionError(
                f"{self._operator!r} has no side output {name!r}; it has {known}",
                hint=f"Declare it where the operator is defined: side_outputs={{{name!r}: schema}}",
            )
        outputs, kind = self._kinds[name]
        made: list[Row] = []
        outputs.collect([row], made)
        self._made.append(kind(outputs.settle(made)[0]))

    def settle(self, made: list[Row], main: Outputs) -> list[Row]:
        """All rows of a bundle; those of the main output are of the right length. Raises InputError."""
        if not self._kinds or not any(isinstance(row, SideRow) for row in made):
            return main.settle(made)
        settled = iter(main.settle([row for row in made if not isinstance(row, SideRow)]))
        return [row if isinstance(row, SideRow) else next(settled) for row in made]
