"""A desk: it repeats what one instance did in archived epochs, in this process, without Spark.

The instance is production's (`clonos.protocol.engine.instance`), with its state in RocksDB and the user's function. It
is given the input as it came, and follows what was recorded, as a standby does: the clock that it reads, what it draws,
in which order records came, and what was answered to its calls, are those of then. It never goes beyond what was
recorded, so nothing is asked of the outside, and no effect is performed. Its log has to equal the recorded one to the
byte, and with it the digest of all rows that it sent: where it does not, DivergenceError says so.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from clonos import ending
from clonos.archive.record_keys import RecordKeys, bundles_of
from clonos.archive.shown_row import ShownRow
from clonos.archive.tracing import TracedOperator, Watcher, traced_services
from clonos.errors import DivergenceError
from clonos.operators.derived_outputs import known_as
from clonos.operators.intercept.operator import InterceptedOperator
from clonos.operators.rows import RowDecoder
from clonos.protocol.archive.episode import ArchivedInput, Episode, Lacking
from clonos.protocol.archive.erasure import lower_bound
from clonos.protocol.archive.input_sets import TimerId
from clonos.protocol.engine.instance import Bundle as Records, Emit, Instance, Persist, Row
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.frontier import numbers_of
from clonos.protocol.ids import NO_EPOCH, Epoch, LogOffset, Origin
from clonos.protocol.line.snapshot_name import MARKED_EVERY
from clonos.protocol.side_output import MAIN
from clonos.protocol.versions.programs import Programs
from clonos.storage.keyed_state import KeyedState, WrittenAnew, has_remains
from clonos.storage.manifest import Manifest
from clonos.storage.snapshots import SnapshotStore
from clonos.storage.timers import EVENT_TIME, PROCESSING_TIME, TimerQueue
from clonos.values.key_codec import pack
from clonos_standby.cluster.spec import NodeSpec
from clonos_standby.replica import snapshot_metadata
from clonos_standby.replica.batches import BundleReader, EncodedRows, OutputWriter, SplitRows
from clonos_standby.replica.instance_config import instance_config
from clonos_standby.replica.outcomes import Outcomes

_FENCE: Final = Fence(1)  # of the desk's own states
_HINT: Final = (
    "What the function depends on has changed since: bring its modules back, and the files that they read, as they "
    "were then. Or the function does something that is not recorded, as reading a clock without ctx (docs/limits.md)"
)


class Desk:
    """See the module. `folder` is its own."""

    def __init__(
        self, origin: Origin, folder: Path, *, tracer: Watcher | None = None, as_stored: bool = False
    ) -> None:
        """A `tracer` looks on, and may end the repetition by RowIsMade. `as_stored`: it is found out what files of the
        state have."""
        self._origin = origin
        self._folder = folder
        self._intercept = False
        self._tracer = tracer
        self._as_stored = as_stored
        self.has_remains = False
        self._lives = 0
        self._records = 0  # of earlier lives
        self.epoch = NO_EPOCH  # the last that was repeated
        self._node: NodeSpec | None = None
        self._state: KeyedState | None = None
        self._store = SnapshotStore(str(folder / "states"), fence=_FENCE, pending=str(folder / "pending"))
        self._writer: OutputWriter
        self._reader: BundleReader
        self._operator: Programs
        self._services: CausalServices
        self._instance: Instance
        self._input = ArchivedInput()
        self._keys: RecordKeys
        self._forgotten: list[Row] = []  # keys
        self._serves_upto: Epoch | None = None  # what the state says that it began with

    def begin(
        self, node: NodeSpec, state: Manifest | None, states: SnapshotStore, *, intercept: bool
    ) -> LogOffset:
        """At an archived state, or at the beginning of the query; the log offset there. With `intercept`, what
        functions ask of Python's own clocks and generators was recorded."""
        self._intercept = intercept
        try:
            self._build(node, state, states)
        finally:
            ending.check()
        if state is not None and self._tracer is not None and self._tracer.input_sets is not None:
            self._tracer.input_sets.begin_at_state(self._timers())
        return self._instance.log_offset

    def repeat(self, node: NodeSpec, episode: Episode) -> Lacking | None:
        """What the instance did in an epoch, which begins where it stands; why not, where input is missing. Raises
        DivergenceError, and what the function raises. What the function prints goes to the standard error."""
        with nullcontext() if self._tracer and self._tracer.speaks else redirect_stdout(sys.stderr):
            try:
                return self._repeat(node, episode)
            except DivergenceError as error:
                raise DivergenceError(error.message, where=error.where, hint=_HINT) from error
            finally:
                ending.check()

    def _repeat(self, node: NodeSpec, episode: Episode) -> Lacking | None:
        if self._node is not node or self._intercept != episode.intercept:
            self._intercept = episode.intercept
            self._go_on_as(node)
        instance = self._instance
        instance.open_epoch(episode.epoch, realtime=episode.realtime)
        instance.follow(episode.log_start, episode.log)
        for bundle in bundles_of(episode.blocks):
            instance.take(self._not_had(self._reader.read(bundle, episode.epoch)))
        if (lacking := self._input.lacks(episode)) is not None:
            return lacking
        instance.end_epoch()
        if instance.log_offset != episode.ended.log_end:
            raise DivergenceError(
                f"the replay of epoch {episode.epoch} ends at log offset {instance.log_offset}, and the epoch ended at "
                f"{episode.ended.log_end}",
                where=self._services.where(None),
            )
        instance.truncate({self._origin: instance.log_offset})
        self.epoch = episode.epoch
        return None

    @property
    def keeps_records_waiting(self) -> bool:
        """For the next epoch, as they waited then."""
        return self._input.has_waiting

    @property
    def records(self) -> int:
        """That were repeated so far."""
        return self._records + self._instance.processed

    def _timers(self) -> Iterator[TimerId]:
        for queue, is_event in ((self._services.timers, False), (self._services.event_timers, True)):
            yield from ((*timer, is_event) for timer in queue.pending())

    @property
    def state(self) -> KeyedState:
        """As it is now, with its timers."""
        assert self._state is not None
        return self._state

    def states(self) -> Iterator[tuple[bytes, Any]]:
        """Every entry of the keyed state, by its key in bytes."""
        self.state.flush()
        yield from self.state.scan(b"")

    def keeps(self, key: Row) -> bool:
        """Whether there is state or a timer of a key, or a record of it waits."""
        return bool(self._operator.kept(key)) or self.awaits(key)

    def awaits(self, key: Row) -> bool:
        """Whether there is a timer of a key, or a record of it waits: so that the function is called for it, though no
        record of it comes."""
        return any(self._timers_of(key)) or any(
            self._keys.has(key, [row]) for _, _, row in self._instance.snapshot().pending
        )

    def forget(self, key: Row) -> None:
        """Remove the state and the timers of a key, and records of it that wait."""
        assert self._state is not None
        for data in self._operator.kept(key):
            self._state.delete(data)
        for timers, timer in list(self._timers_of(key)):
            timers.cancel(*timer)
        self._forgotten.append(key)

    def _timers_of(self, key: Row) -> Iterator[tuple[TimerQueue, tuple[int, bytes, str]]]:
        assert self._state is not None
        data = pack(key)
        for family in (PROCESSING_TIME, EVENT_TIME):
            timers = TimerQueue(self._state, family)
            yield from ((timers, timer) for timer in timers.pending() if timer[1] == data)

    def store(
        self,
        states: SnapshotStore,
        *,
        epoch: Epoch,
        final: bool,
        sequence: int | None = None,
        is_anew: bool = False,
        serves_upto: Epoch | None = None,
    ) -> Manifest:
        """As an archived state, at the end of an epoch or inside it. Of what was recorded nothing is in it. With
        `is_anew` its files have nothing that it does not have any more. `serves_upto`: the last epoch that may be
        repeated from it, unless it began with a state that has an earlier one."""
        assert self._state is not None
        snapshot = self._instance.snapshot()
        for key in self._forgotten:
            snapshot.pending = [each for each in snapshot.pending if not self._keys.has(key, [each[2]])]
        number = MARKED_EVERY * snapshot.log_offset if sequence is None else sequence
        snapshot.serves_upto = lower_bound(self._serves_upto, serves_upto)
        meta = snapshot_metadata.encode(snapshot)
        state = WrittenAnew(self._state) if is_anew else self._state
        return states.finish(states.begin(state, meta, epoch=epoch, sequence=number, final=final))

    def shown(self, rows: list[Row]) -> list[ShownRow]:
        """Rows that a function gave as their readers get them. Raises InputError."""
        assert self._node is not None
        encoded = self._writer.encode(rows)
        parts = encoded.parts if isinstance(encoded, SplitRows) else {MAIN: encoded} if rows else {}
        places = encoded.indices if isinstance(encoded, SplitRows) else {MAIN: list(range(len(rows)))}
        found: dict[int, ShownRow] = {}
        for output, part in parts.items():
            known = known_as(self._node.operator, output)
            decoder = RowDecoder(self._node.outputs[output], self._node.zone, instants=True)
            batch = pa.RecordBatch.from_arrays(part.arrays, schema=decoder.schema)
            for at, row in zip(
                places[output], decoder.rows(decoder.columns(batch), len(places[output])), strict=True
            ):
                found[at] = ShownRow(output, *known, dict(zip(decoder.schema.names, row, strict=True)))
        return [found[at] for at in range(len(rows))]

    def digest(self, rows: list[Row]) -> int:
        """Of what readers get, and of the outputs that it is of. Raises InputError."""
        return self._writer.encode(rows).digest

    def fork(self, folder: Path) -> KeyedState:
        """The state as it is now, to go on from in another way. The caller closes it."""
        assert self._state is not None
        self._state.checkpoint(str(folder))
        return KeyedState(str(folder))

    @property
    def services(self) -> CausalServices:
        """What the function is answered by."""
        return self._services

    def close(self) -> None:
        if self._state is not None:
            self._operator.close()
            self._state.close()
            self._state = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _not_had(self, records: Records) -> Records:
        channels, positions = numbers_of(records.channels), numbers_of(records.positions)
        kept = [at for at, one in enumerate(zip(channels, positions, strict=True)) if self._input.takes(*one)]
        if len(kept) == len(channels):
            return records
        return Records(
            [channels[at] for at in kept], [positions[at] for at in kept], [records.rows[at] for at in kept]
        )

    # ---------------------------------------------------------------- lives

    def _go_on_as(self, node: NodeSpec) -> None:
        """Another program has run the next epoch: what is there goes on with its functions."""
        assert self._state is not None
        manifest = self.store(self._store, epoch=self.epoch, final=True, sequence=self._lives)
        self._records += self._instance.processed
        self._operator.close()
        self._state.close()
        self._build(node, manifest, self._store)

    def _build(self, node: NodeSpec, state: Manifest | None, states: SnapshotStore) -> None:
        self._lives += 1
        self._node = node
        self._keys = RecordKeys(node)
        self._reader = BundleReader(node.input, node.zone, right=node.right)
        read = [route.output for route in node.routes]
        self._writer = OutputWriter(node.outputs, node.zone, node.name, self._origin, read=read)
        path, snapshot = self._folder / f"state-{self._lives}", None
        self._serves_upto = None
        if state is not None:
            states.restore(state, str(path))
            self.has_remains = self._as_stored and has_remains(str(path))
            snapshot = snapshot_metadata.decode(state.meta, self._reader.row_class)
            self._serves_upto = snapshot.serves_upto
        self._state = KeyedState(str(path))
        self._services = self._new_services(self._state)
        self._operator = node.programs()
        operator: Any = InterceptedOperator(self._operator) if self._intercept else self._operator
        operator = operator if self._tracer is None else TracedOperator(operator, self._tracer)
        operator.open(self._services)
        config = instance_config(node, self._origin, self._operator, tells_folds=self._state.tells_folds)
        self._instance = Instance(config, operator, self._services, self)
        self._instance.restore(snapshot)
        if snapshot is not None:
            self._input = ArchivedInput(snapshot.covered, (channel for channel, _, _ in snapshot.pending))
        self._instance.begin_following()
        if self._tracer is not None:
            self._tracer.made = lambda: self._instance.emitted_output
            self._instance.watch_repeated(self._tracer.step_begins)

    def _new_services(self, state: KeyedState) -> CausalServices:
        if self._tracer is None:
            return CausalServices(
                state=state,
                timers=TimerQueue(state, PROCESSING_TIME),
                event_timers=TimerQueue(state, EVENT_TIME),
                random=random.Random(),
                outcomes=Outcomes(),
            )
        return traced_services(self._tracer, state, Outcomes())

    # ------------------------------------------------- the instance's ports

    def clock(self) -> int:
        """Of nothing that is recorded."""
        return 0

    def entropy(self) -> int:
        return 0

    def encode(self, rows: list[Row]) -> EncodedRows | SplitRows:
        return self._writer.encode(rows, lazily=True)

    def persist(self, persist: Persist, *, durable: bool) -> None:
        """It is in the archive."""

    def flush_log(self, due: Sequence[Emit], log_start: LogOffset, log: bytes) -> None:
        """Nothing new is done."""
