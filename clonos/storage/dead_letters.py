"""Dead letters: records that were passed over, with all that is needed to look into it afterwards.

    <checkpoint>/clonos/dead_letters/<node>/<instance>/<channel>-<position>.letter

    "CLDL" | sealed payload: u8 1, u32 CRC-32, a map as `values` encodes it

Version 1 of the map knew no side outputs.

A record has one name in every execution, so writing its letter again replaces it. The letter is durable before the
determinant that says "passed over" is persisted: a process that finds that determinant finds the letter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

import pyarrow as pa

from clonos.errors import LogCorrupt, StateError
from clonos.protocol.fence import Fence
from clonos.protocol.ids import Epoch, InstanceId, NodeId
from clonos.protocol.side_output import OutputName
from clonos.storage.folder import Folder, resolve
from clonos.storage.one_row import row_table, schema_of, schemas_of
from clonos.values import state_codec as values
from clonos.values.sealed_value import seal, unseal

MAGIC: Final = b"CLDL"
VERSION: Final = 2
READ: Final = (1, 2)
SUFFIX: Final = ".letter"
FOLDER: Final = "clonos/dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record that was passed over."""

    operator: str
    operator_version: str
    form: str  # which of the API's methods the function was given to
    node: NodeId
    instance: InstanceId
    epoch: Epoch
    channel: int
    position: int
    zone: str
    row: bytes  # an Arrow stream: the input's schema and this row
    output: bytes  # an Arrow schema message: the output's
    key: tuple[Any, ...]
    state: dict[bytes, Any]  # what was kept for the key, by its bytes in the keyed state
    watermark: int | None  # microseconds
    random: tuple[Any, ...]  # the instance's generator, as random.Random.getstate gives it
    recorded: bytes  # a log chunk: the record's own step, as far as it is recorded
    deaths: list[dict[str, Any]]  # how processes ended with the record in hand
    side_outputs: dict[str, bytes] = field(default_factory=dict)  # schema messages
    intercept: bool = False  # what the function asks Python's own clocks and generators is recorded

    @property
    def name(self) -> str:
        return f"{self.channel}-{self.position}{SUFFIX}"

    def table(self) -> pa.Table:
        """The row."""
        return row_table(self.row)

    def output_schema(self) -> pa.Schema:
        return schema_of(self.output)

    def side_schemas(self) -> dict[OutputName, pa.Schema]:
        return schemas_of(self.side_outputs)


def encode(letter: DeadLetter) -> bytes:
    said = {each.name: getattr(letter, each.name) for each in fields(letter)}
    return MAGIC + seal(values.encode({"version": VERSION, **said}), MAGIC)


def decode(raw: bytes, what: str = "a dead letter") -> DeadLetter:
    """Raises LogCorrupt."""
    if raw[: len(MAGIC)] != MAGIC:
        raise LogCorrupt(f"{what} does not begin as a dead letter does")
    payload = unseal(raw[len(MAGIC) :], MAGIC, what=what, corrupt=LogCorrupt)
    try:
        said: dict[str, Any] = values.decode(payload)
        if said["version"] not in READ:
            raise LogCorrupt(
                f"{what} has version {said['version']}; this library reads {', '.join(map(str, READ))}"
            )
        said = {"side_outputs": {}, "intercept": False, **said}
        return DeadLetter(**{each.name: said[each.name] for each in fields(DeadLetter)})
    except (KeyError, TypeError, ValueError, StateError) as error:
        raise LogCorrupt(f"{what} cannot be read: {error}") from error


class LetterBox:
    """The letters of one instance."""

    def __init__(self, checkpoint: str, node: NodeId, instance: InstanceId, *, fence: Fence) -> None:
        filesystem, root = resolve(checkpoint)
        self._folder = Folder(filesystem, f"{root}/{FOLDER}", tag=f"{node}-{instance}-{Fence(fence).text}")
        self._place = f"{node}/{instance}"

    def write(self, letter: DeadLetter) -> str:
        """Make it durable, or replace what stands under its name; where it is."""
        name = f"{self._place}/{letter.name}"
        self._folder.write(name, encode(letter))
        return self._folder.path(name)
