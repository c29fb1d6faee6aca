"""Which declared fields of kept state continue others.

Values are kept as tuples. Fields that only come behind those of before, or are wider than they were, continue them *as
they are kept*: what is read is one and the same. Fields that are gone, or have another order, continue them *by name*:
every value is written anew when the first epoch of the version begins that declares them, so this needs a new version.
A field that is renamed would lose its values in silence; so a change does not both take fields away and bring others.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from clonos.protocol.topology import Column, Columns, StateVariable

Fields: TypeAlias = tuple[str, ...]
"""The names of the fields of a state variable, in the order in which values are kept."""

_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_NUMBERS: Final = (*_INTEGERS, "float", "double")


class How(enum.Enum):
    AS_KEPT = "as they are kept"
    BY_NAME = "by name, with a new version"
    NOT = "not"


@dataclass(frozen=True, slots=True)
class Evolution:
    """How fields continue others; `says` is what differs, or what stands against it."""

    how: How
    says: str


def evolution(before: Columns, after: Columns) -> Evolution:
    """Of the fields of one state variable."""
    there, known = {field.name: field for field in after}, {field.name: field for field in before}
    differs = []
    for old in before:
        new = there.get(old.name)
        if new is None:
            differs.append(f"lacks {old.name!r}, which it had")
            continue
        if not _holds(old.type, new.type):
            return Evolution(How.NOT, f"has {_typed(new)}; it was {old.type}")
        if old.nullable and not new.nullable:
            return Evolution(How.NOT, f"has {old.name!r} without null; it could be null")
        if old != new:
            differs.append(f"has {_typed(new)}, which may hold more than {old.type}")
    added = [field for field in after if field.name not in known]
    gone = [field for field in before if field.name not in there]
    for field in added:
        if not field.nullable:
            return Evolution(How.NOT, f"has {field.name!r} in addition, which may not be null")
    if added and gone:
        return Evolution(How.NOT, f"has {added[0].name!r} and lacks {gone[0].name!r}, which may be the same")
    if added:
        differs.append(f"has more columns: {', '.join(f'{field.name} {field.type}' for field in added)}")
    if not is_prefix(_names(before), _names(after)):
        if not gone:
            differs.append(f"has the order {', '.join(there)}; it was {', '.join(known)}")
        return Evolution(How.BY_NAME, "; ".join(differs))
    return Evolution(How.AS_KEPT, "; ".join(differs))


def fields_of(variables: tuple[StateVariable, ...] | None) -> dict[str, Fields]:
    """By state variable."""
    return {variable.name: _names(variable.columns) for variable in variables or ()}


def moved(before: Mapping[str, Fields], after: Mapping[str, Fields]) -> dict[str, Fields]:
    """The state variables whose values are written anew by the names of their fields: the fields as they were."""
    return {
        name: fields
        for name, fields in before.items()
        if name in after and not is_prefix(fields, after[name])
    }


def is_prefix(before: Fields, after: Fields) -> bool:
    """Whether values that were kept with the fields before can be read with those after."""
    return after[: len(before)] == before


def _names(columns: Columns) -> Fields:
    return tuple(column.name for column in columns)


def _typed(field: Column) -> str:
    return f"{field.name!r} as {field.type}"


def _holds(old: str, new: str) -> bool:
    """Whether values of a type are taken for those of another. As in Spark's state, integers become wider integers or
    floating-point numbers; decimals may have more digits before and behind the point."""
    if old == new:
        return True
    if old in _INTEGERS or old == "float":
        return new in _NUMBERS[_NUMBERS.index(old) :]
    digits = _digits(old), _digits(new)
    return all(digits) and all(a <= b for a, b in zip(*digits, strict=True))


def _digits(kind: str) -> tuple[int, ...]:
    """Of a decimal type before and behind its point; none of another type."""
    if not kind.startswith("decimal128("):
        return ()
    precision, scale = map(int, kind.removeprefix("decimal128(").removesuffix(")").split(","))
    return precision - scale, scale
