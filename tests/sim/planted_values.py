"""Planted bugs about values: what is equal and differs, what is sent, what only a live object keeps."""

from __future__ import annotations

import datetime as dt
import zlib
from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pytest
from planted import Planted

from clonos.protocol import destination as destinations
from clonos.protocol.destination import KeyKind, Router, conform
from clonos.protocol.ports import Row
from clonos.protocol.recovery.causal.recorder import Sent
from clonos.sim import values as real
from clonos.sim.values import RealLedger, SentRows
from clonos.values import state_cache, state_codec as codec
from clonos.values.state_cache import StateCache

Patch = pytest.MonkeyPatch


def destination_is_remembered_by_python_equality(patch: Patch) -> None:
    """The text of whichever of the equal values came first."""

    def text(value: Any, kind: Any) -> str:
        if isinstance(value, Decimal):
            return format(value, "f")
        return destinations._text(conform(kind, value, real.ZONE))

    def router(kind: Any, parallelism: int) -> Router:
        known: dict[Any, int] = {}

        def target(value: Any) -> int:
            key = value if kind in (KeyKind.DECIMAL, KeyKind.TIMESTAMP) else conform(kind, value, real.ZONE)
            if key not in known:
                known[key] = zlib.crc32(text(key, kind).encode()) % parallelism
            return known[key]

        return lambda rows: [target(row[0]) for row in rows]

    patch.setattr(real, "router", router)


def digest_leaves_out_where_rows_go(patch: Patch) -> None:
    """What the bug above does is then found by those who get the rows, or never."""
    destination_is_remembered_by_python_equality(patch)
    patch.setattr(Sent, "_with_destinations", lambda self, digest: digest)


def digest_is_of_the_text_of_the_rows(patch: Patch) -> None:
    def made(self: SentRows, kind: Any, rows: list[Row]) -> None:
        init(self, kind, rows)
        self.digest = zlib.crc32(repr(rows).encode("utf-8", "surrogatepass"))

    init = SentRows.__init__
    patch.setattr(SentRows, "__init__", made)


def state_is_the_live_object(patch: Patch) -> None:
    patch.setattr(StateCache, "load", StateCache.get)
    patch.setattr(StateCache, "save", StateCache.put)


def rebuilt(value: Any, made: dict[int, Any], *, aliases: bool, histories: bool) -> Any:
    """A copy of containers, in which one object stays one, or a set what it has grown to."""
    if aliases and id(value) in made:
        return made[id(value)]
    again: Any = value
    if isinstance(value, dict):
        again = {
            key: rebuilt(item, made, aliases=aliases, histories=histories) for key, item in value.items()
        }
    elif isinstance(value, list | tuple):
        again = type(value)([rebuilt(item, made, aliases=aliases, histories=histories) for item in value])
    elif isinstance(value, set):
        again = value.copy() if histories else codec.decode(codec.encode(value))
    elif isinstance(value, float) and value != value and not aliases:
        again = float("nan")
    made[id(value)] = again
    return again


def aliases_survive_in_the_cache(patch: Patch) -> None:
    def copied(value: Any, pack: Any = None) -> Any:
        return rebuilt(value, {}, aliases=True, histories=False)

    patch.setattr(state_cache, "own", copied)
    patch.setattr(state_cache, "disowned", lambda kept: copied(_opened(kept)))


def sets_keep_their_history_in_the_cache(patch: Patch) -> None:
    def copied(value: Any, pack: Any = None) -> Any:
        return rebuilt(value, {}, aliases=False, histories=True)

    patch.setattr(state_cache, "own", copied)
    patch.setattr(state_cache, "disowned", lambda kept: copied(_opened(kept)))


def _opened(kept: Any) -> Any:
    return codec.decode(kept) if type(kept) is codec.Encoded else kept


def flat_state_is_not_copied(patch: Patch) -> None:
    """A dict of scalars is kept itself, although the function may hold it, too."""

    def own(value: Any, pack: Any = None) -> Any:
        kept = real_own(value, pack)
        return value if type(kept) is codec.Flat else kept

    real_own = codec.own
    patch.setattr(state_cache, "own", own)
    patch.setattr(
        state_cache, "disowned", lambda kept: codec.decode(kept) if type(kept) is codec.Encoded else kept
    )


def zeros_lose_their_sign_when_they_are_written(patch: Patch) -> None:
    def folded(value: Any) -> Any:
        if type(value) is dict:
            return {key: folded(item) for key, item in value.items()}
        return 0.0 if type(value) is float and value == 0 else value

    encode = codec.encode
    patch.setattr(codec, "encode", lambda value, pack=None: encode(folded(value), pack))


def pieces_hand_their_state_back_one_by_one(patch: Patch) -> None:
    patch.setattr(RealLedger, "pieces", lambda self: nullcontext())


def two_instants_are_one_key(patch: Patch) -> None:
    patch.setattr(real, "key_of", tuple)


def time_of_a_key_is_read_in_another_zone(patch: Patch) -> None:
    """Every other incarnation takes naive timestamps for UTC."""
    made: list[Router] = []

    def router(kind: Any, parallelism: int) -> Router:
        zone = dt.UTC if len(made) % 2 else real.ZONE
        column = destinations.KeyColumn(0, kind)
        made.append(destinations.route_by_key([column], parallelism, zone=zone))
        return made[-1]

    patch.setattr(real, "router", router)


WITH_VALUES = (("real_values", True), ("state_cache", 4))

# By the first seed that finds it.
VALUES = {
    bug.__name__: Planted(bug, first=first, changes=WITH_VALUES)
    for bug, first in (
        (destination_is_remembered_by_python_equality, 90),
        (digest_leaves_out_where_rows_go, 131),
        (digest_is_of_the_text_of_the_rows, 3),
        (state_is_the_live_object, 3),
        (aliases_survive_in_the_cache, 69),
        (sets_keep_their_history_in_the_cache, 55),
        (flat_state_is_not_copied, 3),
        (zeros_lose_their_sign_when_they_are_written, 56),
        (two_instants_are_one_key, 3),
        (time_of_a_key_is_read_in_another_zone, 8),
    )
}
VALUES["pieces_hand_their_state_back_one_by_one"] = Planted(
    pieces_hand_their_state_back_one_by_one,
    first=37,
    changes=(*WITH_VALUES, ("standbys", 1), ("passive", False)),
)
