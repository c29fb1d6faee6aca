"""What the objects of one query have in common, so that one reader can read all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from clonos.errors import SinkError
from clonos.sinks.arrow_rows import with_nulls

if TYPE_CHECKING:
    import pyarrow as pa

    from clonos.sinks.object_rows import Format


@dataclass(frozen=True, slots=True)
class Layout:
    """`columns`: the types of all columns that the query has had, by name."""

    form: str
    id_column: str
    columns: Mapping[str, str]

    @classmethod
    def of(cls, schema: pa.Schema, id_column: str, form: Format) -> Layout:
        """Whether a column may be null makes no difference to readers."""
        return cls(form, id_column, {field.name: str(field.type) for field in with_nulls(schema)})

    @classmethod
    def unpack(cls, said: dict[str, Any] | None) -> Layout | None:
        return cls(**said) if said is not None else None

    def pack(self) -> dict[str, Any]:
        return asdict(self)

    def joined(self, rows: Layout, place: str) -> Layout:
        """With the columns of rows that are to be written beside what is there. Raises SinkError where they differ."""
        pairs = {
            "the format": (self.form, rows.form),
            "the id column": (self.id_column, rows.id_column),
            **{
                f"column {name!r}": (kind, rows.columns[name])
                for name, kind in self.columns.items()
                if name in rows.columns
            },
        }
        for what, (there, now) in pairs.items():
            if there != now:
                raise SinkError(
                    f"{place}: {what} of what the query has written there is {there}, and now {now}",
                    hint="Leave it as it was, or start the query with a new checkpoint and another path",
                )
        return replace(self, columns={**self.columns, **rows.columns})
