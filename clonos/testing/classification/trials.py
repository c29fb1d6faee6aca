"""The inputs that an operator is tried with: a few rows each, dealt to channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pyarrow as pa

from clonos.errors import ConfigurationError
from clonos.testing.classification.generated_rows import generated

FEWEST, MOST = 2, 12
"""Records of a trial."""
_CHANNELS: Final = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """Rows, the channel of each, and the seed of what the operator draws."""

    rows: tuple[tuple[Any, ...], ...]
    channels: tuple[int, ...]
    seed: int


class Trials:
    """Draws trials: of given rows, or of generated ones.

    `channel` is the column that says which channel a row comes by; without one a row may come by any.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[int],
        rows: Sequence[tuple[Any, ...]] | None,
        channel: str | None,
    ) -> None:
        if channel is not None and channel not in schema.names:
            raise ConfigurationError(
                f"there is no column {channel!r} that could say which channel a row comes by",
                hint=f"There are {', '.join(schema.names)}",
            )
        if rows is not None and not rows:
            raise ConfigurationError(
                "no rows are given", hint="Without rows=, or --input, they are generated"
            )
        self._schema = schema
        self._key = key
        self._given = rows
        self._channel = None if channel is None else schema.names.index(channel)

    def draw(self, choices: Random) -> Trial:
        # Now and then two: where a function raises, most long runs end before they show anything.
        count = choices.randint(FEWEST, choices.choice((FEWEST, MOST, MOST)))
        if self._given is None:
            rows = generated(self._schema, self._key, count, choices)
        else:
            rows = self._some_of(self._given, count, choices)
        return Trial(tuple(rows), tuple(self._channels_of(rows, choices)), choices.getrandbits(32))

    def _some_of(
        self, given: Sequence[tuple[Any, ...]], count: int, choices: Random
    ) -> list[tuple[Any, ...]]:
        """Rows that follow one another: of all, or of a few keys, since an operator may compare those of one key."""
        kept: Callable[[tuple[Any, ...]], bool] = lambda row: True  # noqa: E731
        if self._key and choices.random() < 0.5:
            keys = [self._key_of(choices.choice(given)) for _ in range(2)]
            kept = lambda row: self._key_of(row) in keys  # noqa: E731
        rows = [row for row in given if kept(row)]
        begin = choices.randint(0, max(len(rows) - count, 0))
        return list(rows[begin : begin + count])

    def _key_of(self, row: tuple[Any, ...]) -> list[Any]:
        return [row[at] for at in self._key]

    def _channels_of(self, rows: Sequence[tuple[Any, ...]], choices: Random) -> list[int]:
        if self._channel is None:
            return [choices.randrange(_CHANNELS) for _ in rows]
        values: list[Any] = []
        for row in rows:
            if row[self._channel] not in values:
                values.append(row[self._channel])
        return [values.index(row[self._channel]) for row in rows]
