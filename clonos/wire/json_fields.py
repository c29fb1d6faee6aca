"""Reading JSON objects that came from the other end of a connection: each field is checked before it is used.

`name` is that of the message, for what is raised: ProtocolError, saying what was wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clonos.errors import ProtocolError
from clonos.json_text import parsed_json
from clonos.protocol.counters import LAST_LONG
from clonos.protocol.fence import Generation
from clonos.protocol.ids import Epoch, Origin

MAX_INT: Final = (1 << 31) - 1
MAX_LONG: Final = LAST_LONG
MAX_NODE: Final = 63


def parse_json(payload: memoryview, name: str) -> dict[str, Any]:
    """The JSON object in the bytes of a frame."""
    try:
        said = parsed_json(bytes(payload).decode())
    except ValueError as error:
        raise ProtocolError(f"{name}: not UTF-8 JSON: {error}") from None
    if not isinstance(said, dict):
        raise ProtocolError(f"{name}: a JSON object is expected, not {type(said).__name__}")
    return said


def whole(said: Mapping[str, Any], key: str, name: str, low: int = 0, high: int = MAX_LONG) -> int:
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ProtocolError(f"{name}: {key} {value!r} is not a whole number from {low} to {high}")
    return value


def epoch_of(said: Mapping[str, Any], name: str) -> Epoch:
    return Epoch(whole(said, "epoch", name))


def generation_in(said: Mapping[str, Any], name: str) -> Generation:
    return Generation(whole(said, "generation", name))


def origin_of(said: Mapping[str, Any], name: str) -> Origin:
    return Origin.of(whole(said, "node", name, 1, MAX_NODE), whole(said, "instance", name, high=MAX_INT))


def flag(said: Mapping[str, Any], key: str, name: str) -> bool:
    value = said.get(key)
    if not isinstance(value, bool):
        raise ProtocolError(f"{name}: {key} {value!r} is not true or false")
    return value


def text(said: Mapping[str, Any], key: str, name: str) -> str:
    value = said.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"{name}: {key} is not a text")
    return value
