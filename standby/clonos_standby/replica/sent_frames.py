"""The log of what an instance has sent, as OUTPUT frames in the database of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clonos.errors import SnapshotCorrupt
from clonos.protocol.ids import OutputNumber
from clonos.protocol.ports import Emit
from clonos.protocol.recovery.uncoordinated.sent_log import SentLog
from clonos.storage.keyed_state import KeyedState
from clonos.storage.sent_log import SentRows
from clonos.wire.framing import Packed, frame_of, to_bytes
from clonos.wire.messages import Output, pack_output, parse


class SentFrames(SentLog[Packed]):
    """See the module. `acked_input` is the last bundle that the instance has taken in this task attempt: that of the
    attempt that sent a frame first means nothing to the conduit."""

    def __init__(self, state: KeyedState, acked_input: Callable[[], int]) -> None:
        self._rows = SentRows(state)
        self._acked_input = acked_input

    def keep(self, emit: Emit, frame: Packed) -> None:
        self._rows.keep(emit.emitted_output, to_bytes(frame))

    def frames(self, since: OutputNumber) -> Iterator[tuple[OutputNumber, Packed]]:
        for last, content in self._rows.since(since):
            sent = parse(frame_of(content))
            if not isinstance(sent, Output) or sent.emitted_output != last:
                raise SnapshotCorrupt(
                    f"the log of what was sent has {type(sent).__name__} for rows up to {last}"
                )
            frame = pack_output(self._acked_input(), last, sent.log_start, rows=sent.rows, blocks=sent.blocks)
            yield last, frame

    def forget(self, before: OutputNumber) -> None:
        self._rows.forget(before)

    def clear(self) -> None:
        self._rows.clear()
