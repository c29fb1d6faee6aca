"""Values of columns that are not to be shown, in what is explained. Names are of columns, of fields of structs, and of
keys of maps, in upper or lower case, as Spark has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from clonos.archive.reading import ArchivedQuery
from clonos.errors import ConfigurationError
from clonos.json_text import parsed_json
from clonos.protocol.topology import Column

MASKED: Final = "***"
"""In the place of such a value."""
_FIELD: Final = re.compile(r"(\w+|`[^`]*`):")


class Mask:
    """Of these names; none where there are none."""

    def __init__(self, names: Iterable[str]) -> None:
        self._given = [name.strip() for name in names if name.strip()]
        self._names = frozenset(name.casefold() for name in self._given)

    @classmethod
    def parse(cls, text: str) -> Mask:
        """Names with commas between them."""
        return cls(text.split(","))

    def __bool__(self) -> bool:
        return bool(self._names)

    def __str__(self) -> str:
        return ",".join(self._given)

    def check(self, query: ArchivedQuery) -> str:
        """What its reader has to know of it, or "". Raises ConfigurationError where no row of the query can have such a
        column, field, or entry of a map: it would hide nothing."""
        known = {name.casefold() for name in _names(query)}
        unknown = ", ".join(name for name in self._given if name.casefold() not in known)
        there = f"There are {', '.join(sorted(_names(query)))}"
        if not unknown:
            return ""
        if not any("map<" in column.type for column in _columns(query)):
            raise ConfigurationError(
                f"no row of the query has a column {unknown}, so that nothing would be hidden by it",
                hint=there,
            )
        return f"no column is called {unknown}: hidden are entries of maps under that name. {there}"

    def hides(self, name: str) -> bool:
        return name.casefold() in self._names

    def hides_of(self, query: ArchivedQuery, name: str) -> bool:
        """Whether any value of the columns of this name, or a field inside it, is hidden."""
        inside = (each for column in _columns(query) if column.name == name for each in _fields(column))
        return self.hides(name) or any(map(self.hides, inside))

    def hides_of_text(self, text: str) -> bool:
        """Whether a value that is looked for, as JSON, has a key of a map that is hidden, or a field."""
        try:
            value = parsed_json(text)
        except ValueError:
            return False
        return json.dumps(value) != json.dumps(self._value(value))  # NaN equals nothing

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row without these values."""
        return {name: MASKED if self.hides(name) else self._value(value) for name, value in row.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.row(dict(zip(value._fields, value, strict=True)))
        if isinstance(value, list | tuple):
            return [self._value(each) for each in value]
        if isinstance(value, dict):
            return {
                key: MASKED if isinstance(key, str) and self.hides(key) else self._value(each)
                for key, each in value.items()
            }
        return value

    def hide(self, said: dict[str, Any]) -> None:
        """In place, of an explanation: columns of these names, wherever they are; and state, keys, timers, what the
        function asked for and was given, and why something is lacking, which may have been made of them, or they of
        it."""
        said["row"] = self.row(said.get("row", {}))
        for one in said.get("state", ()):
            one |= {"key": MASKED, "before": MASKED, "after": MASKED}
        said["keys"] = [MASKED for _ in said.get("keys", ())]
        for one in said.get("timers", ()):
            one |= {"name": MASKED, "due": MASKED}
        said |= {name: MASKED for name in ("fired_at", "watermark") if name in said}
        for one in said.get("asked", ()):
            one |= {name: MASKED for name in ("what", "at", "given", "raised") if name in one}
        if "lacking" in said and said.pop("has_raised", False):
            said["lacking"] = WITHOUT_TEXT
        for one in said.get("inputs", ()):
            one["row"] = self.row(one["row"])
            if "made_by" in one:
                self.hide(one["made_by"])


WITHOUT_TEXT: Final = (
    "an error was raised when it was repeated, of which the text is not shown: it may have such values"
)


def _names(query: ArchivedQuery) -> set[str]:
    return {name for column in _columns(query) for name in (column.name, *_fields(column))}


def _columns(query: ArchivedQuery) -> Iterator[Column]:
    for node in query.program.nodes:
        derived = (each.columns for each in node.derived.values())
        for columns in (node.columns or (), *node.side_outputs.values(), *derived):
            yield from columns


def _fields(column: Column) -> list[str]:
    return [name.strip("`") for name in _FIELD.findall(column.type)]
