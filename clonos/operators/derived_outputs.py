"""Outputs that are derived from an operator's own by expressions: what `select` and `where` behind it leave.

They are made in the operator's replica, of each row as soon as the operator has given it, and each is an output of its
own beside the main one (`clonos.protocol.side_output`). What a row becomes depends on that row alone, and all that it
becomes stands together, so a bundle that is run in pieces gives the same rows in the same order. An output that is read
only through expressions is not given itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from clonos.errors import InputError, QueryDefinitionError, UserFunctionError
from clonos.operators.expressions.compiled import EvaluationError
from clonos.operators.expressions.derived import DerivedRows, ExpressionFailed, Made
from clonos.operators.expressions.tree import Derivation
from clonos.protocol.operator import Operator, Services
from clonos.protocol.side_output import MAIN, OutputName, output_of, side_row_type

Row = tuple[Any, ...]
_MOST: Final = 255
"""How many rows a row becomes is told in a byte (`engine.given_rows`)."""


@dataclass(frozen=True, slots=True)
class DerivedOutput:
    """`source` is the output of whose rows it is made."""

    source: OutputName
    derivation: Derivation


@dataclass(frozen=True, slots=True)
class DerivedOutputs:
    """Of one operator. `outputs` are those that it gives itself, `wanted` those of them and of the derived ones that
    are read."""

    operator: str
    outputs: Mapping[OutputName, pa.Schema]
    derived: Mapping[OutputName, DerivedOutput]
    wanted: frozenset[OutputName]

    def around(self, make: Callable[[], Any]) -> Callable[[], Any]:
        """What makes the operator, made to give them, too. Raises QueryDefinitionError where there are too many."""
        if len(self.wanted) > _MOST:
            raise QueryDefinitionError(
                f"{len(self.wanted)} outputs of {self.operator!r} are read; at most {_MOST} can be",
                hint="Read fewer of them, and let an operator behind it tell its rows apart",
            )
        return _Make(make, self)


@dataclass(frozen=True, slots=True)
class _Make:
    make: Callable[[], Any]
    derived: DerivedOutputs

    def __call__(self) -> WithDerivedOutputs:
        return WithDerivedOutputs(self.make(), self.derived)


def known_as(make: Callable[[], Any] | None, output: OutputName) -> tuple[OutputName, str]:
    """An output of what makes an operator as users know it: one that the operator gives itself, and the steps behind
    that which make it another one."""
    derived = make.derived.derived.get(output) if isinstance(make, _Make) else None
    return (output, "") if derived is None else (derived.source, "; ".join(derived.derivation.said))


class WithDerivedOutputs:
    """An operator that gives derived outputs, too; in everything else it is the operator that it is around."""

    def __init__(self, operator: Operator, given: DerivedOutputs) -> None:
        self._operator = operator
        self._given = given
        self._of: dict[OutputName, list[Callable[[list[Row]], Made]]] = {
            output: [_as_given] if output in given.wanted else [] for output in given.outputs
        }
        for name in sorted(given.derived):
            each = given.derived[name]
            rows = DerivedRows(given.outputs[each.source], each.derivation, given.operator)
            self._of[each.source].append(_as_side_rows(rows, side_row_type(name)))

    def __getattr__(self, name: str) -> Any:
        if name == "_operator":
            raise AttributeError(name)
        return getattr(self._operator, name)

    def open(self, services: Services) -> None:
        self._services = services
        self._operator.open(services)

    def bundle(self, keys: list[Row], rows: list[Row]) -> list[Row]:
        return self._derived(self._operator.bundle(keys, rows))

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[Row]:
        return self._derived(self._operator.timers(due, event))

    def gathered(self) -> list[Row]:
        return self._derived(self._operator.gathered())

    def _derived(self, rows: list[Row]) -> list[Row]:
        if not rows:
            return rows
        try:
            return self._split(rows)
        except ExpressionFailed as failed:
            said = str(failed.cause)  # names the expression, where it is one of ours
            if not isinstance(failed.cause, EvaluationError):
                said = f"{failed.text} raised {type(failed.cause).__name__}: {said}"
            text = f"an expression behind {self._given.operator!r} has no value: {said}"
            raise UserFunctionError(text, where=self._services.where(None)) from failed.cause
        except InputError as error:
            raise error.at(self._services.where(None)) from None

    def _split(self, rows: list[Row]) -> list[Row]:
        outputs = list(map(output_of, rows)) if len(self._of) > 1 else [MAIN] * len(rows)
        asks = self._services.given_rows is not None or self._services.input_sets is not None
        if outputs.count(outputs[0]) == len(outputs):
            columns = [make(rows) for make in self._of[outputs[0]]]
            if asks:
                self._tell(_forms(columns, len(rows)))
            if len(columns) == 1:
                return [row for row in columns[0] if row is not None]
            return [row for group in zip(*columns, strict=True) for row in group if row is not None]
        groups = {}
        forms = bytearray(len(rows))
        for output in dict.fromkeys(outputs):
            places = [at for at, of in enumerate(outputs) if of == output]
            own = [rows[at] for at in places]
            made = [make(own) for make in self._of[output]]
            groups[output] = iter(zip(*made, strict=True)) if made else iter([()] * len(own))
            if asks:
                for at, count in zip(places, _forms(made, len(own)), strict=True):
                    forms[at] = count
        if asks:
            self._tell(bytes(forms))
        return [row for output in outputs for row in next(groups[output]) if row is not None]

    def _tell(self, forms: bytes) -> None:
        """How many rows each row that the function gave has become."""
        if (sets := self._services.input_sets) is not None:
            sets.becomes([*forms])
        if (noted := self._services.given_rows) is not None:
            noted.derive(forms)


def _forms(columns: list[Made], count: int) -> bytes:
    """How many rows there are of each of so many, in all columns."""
    kept = [bytes([row is not None for row in column]) for column in columns]
    return kept[0] if len(kept) == 1 else bytes(map(sum, zip(*kept, strict=True))) if kept else bytes(count)


def _as_given(rows: list[Row]) -> Made:
    return [*rows]


def _as_side_rows(derive: DerivedRows, kind: type[Row]) -> Callable[[list[Row]], Made]:
    return lambda rows: [None if row is None else kind(row) for row in derive(rows)]
