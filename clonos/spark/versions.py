"""The functions of earlier versions that a program brings along, to repeat what they have begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from clonos.errors import QueryDefinitionError
from clonos.spark.plan import Binding, OperatorFactory

Previous: TypeAlias = Mapping[str, Any] | None
"""Functions by version."""


def items_of(previous: Previous, binding: Binding) -> list[tuple[str, Any]]:
    """Raises QueryDefinitionError."""
    if previous is None:
        return []
    if not isinstance(previous, Mapping) or not all(isinstance(version, str) for version in previous):
        raise QueryDefinitionError(
            f"previous of {binding.name!r} must map versions to functions, not {previous!r}",
            hint='Give previous={"1": old_function}',
        )
    return list(previous.items())


def check_previous(previous: Previous, binding: Binding) -> None:
    """Raises QueryDefinitionError."""
    if binding.version in dict(items_of(previous, binding)):
        raise QueryDefinitionError(
            f"{binding.name!r} has version {binding.version!r} twice: as its own and in previous",
            hint="Raise version= when the function changes",
        )


def factories(previous: Previous, of: Callable[[Any], OperatorFactory]) -> dict[str, OperatorFactory]:
    return {version: of(given) for version, given in (previous or {}).items()}


def parts(given: Any, *defaults: Any) -> tuple[Any, ...]:
    """A function, and what belongs to it: given with it, as a tuple, or else the default. Raises
    QueryDefinitionError."""
    found = given if isinstance(given, tuple) else (given,)
    if len(found) > 1 + len(defaults) or not found:
        raise QueryDefinitionError(
            f"a function that is given with what belongs to it is a tuple of up to {1 + len(defaults)}, not of "
            f"{len(found)}: {found!r}",
            hint="docs/upgrading.md says what belongs to one",
        )
    return (*found, *defaults[len(found) - 1 :])
