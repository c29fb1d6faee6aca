"""A recorded call as a file: what a function was given for one record, what it asked for, and what it said.

    "CLRC" | sealed payload: u8 1, u32 CRC-32, a map as `values` encodes it

It is taken out of an archive, and tried again in tests (`clonos.testing.pytest_plugin`): it holds no code.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import pyarrow as pa

from clonos.errors import LogCorrupt, StateError
from clonos.protocol.ids import Epoch
from clonos.protocol.side_output import OutputName
from clonos.storage.one_row import row_table, schema_of, schemas_of
from clonos.values import state_codec as values
from clonos.values.sealed_value import seal, unseal

MAGIC: Final = b"CLRC"
VERSION: Final = 1
SUFFIX: Final = ".call"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """What a call or an effect gave. Another asking is the same if it is of this kind, and has this identity."""

    kind: str  # call, effect
    what: str  # as people read it
    identity: Any
    ok: bool
    payload: bytes  # as causal logs have it


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """See the module. Times are in microseconds since 1970."""

    query: str
    row: str  # the id of the row that it was taken for
    epoch: Epoch
    operator: str
    operator_version: str
    form: str  # which of the API's methods the function was given to
    function: str  # module:name; "" where it has none
    zone: str
    intercept: bool  # what the function asks Python's own clocks and generators was recorded
    record: bytes  # an Arrow stream: the input's schema and the record
    output: bytes  # an Arrow schema message: the output's
    side_outputs: dict[str, bytes]  # schema messages
    key: tuple[Any, ...]
    before: dict[bytes, Any]  # what was kept for the key, by its bytes in the keyed state
    after: dict[bytes, Any]
    watermark: int | None
    random: tuple[Any, ...]  # the instance's generator before, as random.Random.getstate gives it
    random_after: tuple[Any, ...]
    clock: int | None  # None where the function has not read it
    instants: list[int]  # of the exact clock
    answers: list[RecordedAnswer]
    # Whether it is set, when it is due, name, whether of event time
    timers: list[tuple[bool, int, str, bool]]
    outputs: list[tuple[str, bytes]] = field(default_factory=list)  # rows in order, by output: Arrow streams

    def table(self) -> pa.Table:
        """The record."""
        return row_table(self.record)

    def output_schema(self) -> pa.Schema:
        return schema_of(self.output)

    def side_schemas(self) -> dict[OutputName, pa.Schema]:
        return schemas_of(self.side_outputs)


def encode(call: RecordedCall) -> bytes:
    """Raises StateError where something in it is no plain value."""
    said = {each.name: getattr(call, each.name) for each in fields(call)}
    said["answers"] = [asdict(each) for each in call.answers]
    return MAGIC + seal(values.encode({"version": VERSION, **said}), MAGIC)


def decode(raw: bytes, what: str = "a recorded call") -> RecordedCall:
    """Raises LogCorrupt."""
    if raw[: len(MAGIC)] != MAGIC:
        raise LogCorrupt(f"{what} does not begin as a recorded call does")
    payload = unseal(raw[len(MAGIC) :], MAGIC, what=what, corrupt=LogCorrupt)
    try:
        said: dict[str, Any] = values.decode(payload)
        if said["version"] != VERSION:
            raise LogCorrupt(f"{what} has version {said['version']}; this library reads {VERSION}")
        known = {each.name: said[each.name] for each in fields(RecordedCall)}
        known["answers"] = [RecordedAnswer(**each) for each in known["answers"]]
        return RecordedCall(**known)
    except (KeyError, TypeError, ValueError, StateError) as error:
        raise LogCorrupt(f"{what} cannot be read: {error}") from error
