"""One life of an instance under test: its operator, state, timers and log, as a replica has them.

Keyed state and timers are in RocksDB, the recorded log in a log store; both are in a folder of this life. The instance
is production's (`clonos.protocol.engine.instance`), and so is everything that it drives. What differs from a replica is
the way in and out: rows come from the test and go back to it, clock and entropy are the test's.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from clonos.errors import ConfigurationError, DivergenceError
from clonos.operators.intercept.operator import InterceptedOperator
from clonos.operators.process import Timer
from clonos.operators.rows import RowDecoder, RowEncoder, is_right
from clonos.operators.state_variables import TTL_TIMER
from clonos.protocol.engine.channel_watermarks import MOMENT
from clonos.protocol.engine.instance import Action, Bundle, Emit, Instance, Persist, Row
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.ids import Epoch, LogOffset, NodeId, Origin, OutputNumber
from clonos.protocol.recovery.causal.replayer import HINT
from clonos.protocol.side_output import MAIN, OutputName
from clonos.protocol.versions.programs import Programs
from clonos.protocol.versions.upgrade import Schedule
from clonos.storage.keyed_state import KeyedState
from clonos.storage.log_store import LogStore
from clonos.storage.manifest import Manifest
from clonos.storage.snapshots import SnapshotStore
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.testing.driver import differences
from clonos.testing.driver.differences import Said, Seen
from clonos.values import state_codec
from clonos.values.canonical_text import canonical
from clonos.values.key_codec import unpack
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica import snapshot_metadata
from clonos_standby.replica.batches import EncodedRows, OutputWriter, SplitRows
from clonos_standby.replica.instance_config import instance_config, watermark_of_rows
from clonos_standby.replica.outcomes import Outcomes

_LEFT, _RIGHT = 0, 1  # channels
INPUTS: Final = (NodeId(_LEFT), NodeId(_RIGHT))
"""The nodes whose channels they are."""
_STATE_CACHE = 10_000


class SideOutput(NamedTuple):
    """A row that an operator has given by `ctx.side_output`."""

    output: str
    row: Row


class RowForms:
    """Rows of the test as the function gets them, and output rows as the next operator gets them: those of the output
    `read` as they are, others as `SideOutput`."""

    def __init__(self, node: NodeSpec, read: OutputName = MAIN) -> None:
        self._read = read
        self._encoders = {False: RowEncoder(node.input, node.zone, "what was fed")}
        self._inputs = {False: RowDecoder(node.input, node.zone)}
        if node.right is not None:
            self._encoders[True] = RowEncoder(node.right.schema, node.zone, "what was fed")
            self._inputs[True] = RowDecoder(node.right.schema, node.zone, is_right=True)
        self._outputs = {output: RowDecoder(schema, node.zone) for output, schema in node.outputs.items()}

    def row_class(self, channel: int) -> type:
        return self._inputs[channel == _RIGHT].row_class

    def read(self, given: Sequence[Any], *, of_right: bool = False) -> list[Row]:
        """Input rows, through Arrow. Raises InputError where one does not fit the schema."""
        if of_right not in self._inputs:
            raise ConfigurationError("the operator has one input", hint="Only one of connect() has a second")
        batch, decoder = self._encoders[of_right].batch(given), self._inputs[of_right]
        return decoder.rows(decoder.columns(batch), batch.num_rows)

    def shown(self, encoded: EncodedRows | SplitRows) -> list[Row]:
        """In order. Those of side outputs are `SideOutput`."""
        if isinstance(encoded, EncodedRows):
            return self._decoded(MAIN, encoded)
        found: dict[int, Row] = {}
        for output, part in encoded.parts.items():
            rows = self._decoded(output, part)
            found |= zip(
                encoded.indices[output],
                rows if output == self._read else [SideOutput(output, row) for row in rows],
                strict=True,
            )
        return [found[index] for index in sorted(found)]

    def _decoded(self, output: OutputName, encoded: EncodedRows) -> list[Row]:
        if not encoded.arrays:
            return []
        decoder = self._outputs[output]
        batch = pa.RecordBatch.from_arrays(encoded.arrays, schema=decoder.schema)
        return decoder.rows(decoder.columns(batch), batch.num_rows)


class Life:
    """See the module. Also the instance's ports."""

    def __init__(
        self,
        node: NodeSpec,
        forms: RowForms,
        folder: Path,
        *,
        said: list[Said],
        clock: Callable[[], int],
        entropy: Callable[[], int],
        intercept: bool,
        services: Callable[..., CausalServices] = CausalServices,
    ) -> None:
        """`said` has what each step of the epoch has said in earlier lives: the first steps of this life must say it
        again, others are added."""
        self._node = node
        self._forms = forms
        self._folder = folder
        self._said = said
        self._repeated = 0
        self._clock = clock
        self._entropy = entropy
        self._intercept = intercept
        self._new_services = services
        self._rows: list[Row] = []
        self._operator: Any = None
        self._origin = Origin.of(node.number, 0)
        self._writer = OutputWriter(node.outputs, node.zone, node.name, self._origin)
        self._closed = False
        folder.mkdir(parents=True)

    def begin(self, snapshots: SnapshotStore, ended: Manifest | None, recorded: bytes) -> None:
        """Restore the end of the last epoch, with the log that was recorded since."""
        state, snapshot = self._folder / "state", None
        if ended is not None:
            snapshots.restore(ended, str(state))
            snapshot = snapshot_metadata.decode(ended.meta, self._forms.row_class)
        self._state = KeyedState(str(state), cache_entries=_STATE_CACHE)
        self._log = LogStore(str(self._folder / "log"))
        self._timers = TimerQueue(self._state, PROCESSING_TIME)
        self._event_timers = TimerQueue(self._state, EVENT_TIME)
        self.services = self._new_services(
            state=self._state,
            timers=self._timers,
            event_timers=self._event_timers,
            random=random.Random(),
            outcomes=Outcomes(),
        )
        version = self._node.version
        self._programs = Programs(
            self._node.name, Schedule.always(version), version, {version: self._make_operator}
        )
        operator: Any = InterceptedOperator(self._programs) if self._intercept else self._programs
        operator.open(self.services)
        self.config = instance_config(
            self._node, self._origin, self._programs, tells_folds=self._state.tells_folds
        )
        self.instance = Instance(self.config, operator, self.services, self)
        self.instance.restore(snapshot, recorded=recorded)

    def _make_operator(self) -> Any:
        # A replica has its own copy of every object that the user gave; functions are the same.
        self._operator = copy.deepcopy(self._node.operator)()  # type: ignore[misc]
        return self._operator

    def end(self) -> None:
        """The process is gone: what was not written to the log is lost, and the state with it."""
        if not self._closed:
            self._closed = True
            for part in (getattr(self, "_state", None), getattr(self, "_log", None)):
                if part is not None:
                    part.close()

    def recorded(self, since: LogOffset) -> bytes:
        """What the log holds from an offset on. Of a life that has ended, what a successor would find."""
        log = LogStore(str(self._folder / "log")) if self._closed else self._log
        try:
            return b"".join(data for start, data in log.own() if start >= since)
        finally:
            if self._closed:
                log.close()

    # driving

    def open_epoch(self, epoch: Epoch, emitted_output: OutputNumber) -> list[Row]:
        opened = self.instance.open_epoch(
            epoch, realtime=not self.config.per_epoch, emitted_output=emitted_output
        )
        rows = self._perform(opened)
        self._undrawn = self.services.random.getstate()
        return rows

    def take(self, first: int, rows: list[Row]) -> list[Row]:
        """Records as one bundle, at positions from `first` on."""
        positions = list(range(first, first + len(rows)))
        channels = [_RIGHT if is_right(row) else _LEFT for row in rows]
        return self._perform(
            self.instance.take(Bundle(channels, positions, rows, (), self._watermarks(rows)))
        )

    def _watermarks(self, rows: list[Row]) -> dict[int, int]:
        """How far event time has come by these records, as their senders would say it."""
        node, said = self._node, {}
        right = node.right.event_time if node.right is not None else None
        for channel, event_time in ((_LEFT, node.event_time), (_RIGHT, right)):
            latest = watermark_of_rows(event_time, node.zone)
            given = [row for row in rows if is_right(row) == (channel == _RIGHT)]
            if latest is not None and (reached := latest(given)) is not None:
                said[channel] = reached
        return said

    def tick(self, now: int) -> list[Row]:
        return self._perform(self.instance.tick(now))

    def pass_event_time(self, since: int, now: int) -> list[Row]:
        """The instance listens all the time."""
        said: list[Row] = []
        if self.config.event_inputs:
            for moment in (*range(since + MOMENT, now, MOMENT), now):
                said += self.tick(moment)
        return said

    def next_due(self) -> int | None:
        """When the next processing-time timer is due that need not wait for the epoch's end."""
        return None if self.config.per_epoch else self._timers.next_due()

    def last_steps(self) -> list[Row]:
        """Those at the end of an epoch."""
        return self._perform(self.instance.end_epoch())

    def end_epoch(self, snapshots: SnapshotStore, epoch: Epoch) -> tuple[list[Row], Manifest, LogOffset]:
        """The epoch's last rows, its final snapshot, and the offset at which the log goes on."""
        rows = self.last_steps()
        snapshot = self.instance.snapshot()
        pending = snapshots.begin(
            self._state, snapshot_metadata.encode(snapshot), epoch=epoch, sequence=epoch, final=True
        )
        manifest = snapshots.finish(pending)
        self.instance.truncate({self._origin: snapshot.log_offset})
        self._log.truncate_own(snapshot.log_offset)
        self._said.clear()
        self._repeated = 0
        return rows, manifest, snapshot.log_offset

    def _perform(self, actions: Iterable[Action]) -> list[Row]:
        for action in actions:
            if isinstance(action, Persist):
                self.persist(action, durable=False)
            else:
                self._emit(action)
        rows, self._rows = self._rows, []
        return rows

    def _emit(self, emit: Emit) -> None:
        if emit.count:
            assert isinstance(emit.payload, EncodedRows | SplitRows)
            self._rows += self._forms.shown(emit.payload)

    # what a test sees

    @property
    def has_drawn(self) -> bool:
        """Whether the function has drawn random numbers in this epoch. Asked of a life that repeats nothing."""
        drawn: bool = self.services.random.getstate() != self._undrawn
        return drawn

    def state_of(self, key: tuple[Any, ...]) -> Any:
        return self._operator.user_state(key)

    def timers(self) -> dict[Any, list[Timer]]:
        """By key, those of processing time before those of event time, in the order in which they fire."""
        found: dict[Any, list[Timer]] = {}
        for queue, event in ((self._timers, False), (self._event_timers, True)):
            for due, key, name in queue.pending():
                if not name.startswith(TTL_TIMER):
                    found.setdefault(unpack(key), []).append(Timer(name, due, event))
        return found

    def seen(self, keys: Iterable[tuple[Any, ...]]) -> Seen:
        known = list(keys)
        kept = {key: self._programs.kept(key) for key in known}
        return Seen(
            {key: canonical(self.state_of(key)) for key in known},
            {key: {at: state_codec.encode(value) for at, value in kept[key].items()} for key in known},
            self.timers(),
        )

    # the instance's ports

    def clock(self) -> int:
        return self._clock()

    def entropy(self) -> int:
        return self._entropy()

    def encode(self, rows: list[Row]) -> EncodedRows | SplitRows:
        """Called once for each step with the rows that it produced."""
        encoded = self._writer.encode(rows)
        said = Said(encoded.digest, tuple(map(repr, self._forms.shown(encoded))))
        if self._repeated < len(self._said):
            before = self._said[self._repeated]
            if before.digest != said.digest:
                found = differences.of_rows(before.rows, said.rows)
                raise DivergenceError(found, where=self.services.where(None), hint=HINT)
        else:
            self._said.append(said)
        self._repeated += 1
        return encoded

    def persist(self, persist: Persist, *, durable: bool) -> None:
        if persist.own:
            self._log.append((), (persist.own_start, b"".join(persist.own)))

    def flush_log(self, due: Sequence[Emit], log_start: LogOffset, log: bytes) -> None:
        for emit in due:
            self._emit(emit)
