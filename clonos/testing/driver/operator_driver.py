"""The test driver for operators. `clonos.testing.driver` shows its use."""

from __future__ import annotations

import datetime as dt
import random
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from clonos.api.streams import CausalStream
from clonos.errors import ConfigurationError, DivergenceError, QueryDefinitionError, Where
from clonos.operators.initial_state import RowsByInstance
from clonos.operators.intercept.advice import advised
from clonos.operators.intercept.install import install, rebind, uninstall
from clonos.operators.process import Timer
from clonos.operators.table_join import FixedTable, Tables
from clonos.protocol.engine.channel_watermarks import EventInput
from clonos.protocol.engine.instance import Row
from clonos.protocol.engine.services import CausalServices
from clonos.protocol.fence import Fence
from clonos.protocol.ids import FIRST_EPOCH, LOG_BEGIN, NO_OUTPUT, epoch_after, output_after
from clonos.protocol.recovery.causal.determinant_codec import decode_steps
from clonos.protocol.recovery.causal.replayer import HINT
from clonos.protocol.recovery.causal.services_used import services_used
from clonos.protocol.recovery.dependence import Determinism, Service
from clonos.protocol.side_output import OutputName
from clonos.spark.compile import Target, given_to, operator_spec
from clonos.spark.derived_outputs import DerivedOf
from clonos.spark.plan import DerivedPlan, OperatorPlan, SideOutputPlan, TablePlan, base_output, output_read
from clonos.spark.table_keeper import in_columns_of
from clonos.storage.manifest import Manifest
from clonos.storage.snapshots import SnapshotStore
from clonos.testing.driver import differences
from clonos.testing.driver.differences import Said, Seen
from clonos.testing.driver.life import INPUTS, Life, RowForms
from clonos.testing.driver.recording import Recording
from clonos.values.grouping_keys import key_of
from clonos_standby.cluster.spec import NodeSpec

__all__ = ["START", "OperatorDriver"]

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
"""What the clock of a driver says at first, unless another time is given."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_NODE = 1
_FENCE = Fence(1)


class OperatorDriver:
    """One instance of an operator, driven by a test: all keys, one bundle at a time.

    The clock stands still unless `advance` moves it, and randomness comes from `seed`, so a test sees the same each
    time it runs. Output rows are as the next operator would get them: tuples with names, a TIMESTAMP as a naive
    datetime in the stream's time zone.

    Objects that were given (a `StatefulProcessor`, an object with `__call__`) are copied for each life of the
    instance, as every replica process has its own. A plain function is not copied: it may count in a variable of the
    test how often it was called.

    Use it from one thread. It keeps state and log in a temporary folder, until `close`, the end of the `with` block, or
    until the last reference to it is gone.
    """

    def __init__(
        self,
        operator: CausalStream,
        *,
        now: dt.datetime = START,
        seed: int = 0,
        intercept: bool = False,
        services: Callable[..., CausalServices] = CausalServices,
        repeats: tuple[Iterable[Any], Recording] | None = None,
        folder: Path | None = None,
    ) -> None:
        """`operator` is the stream of the operator's rows, defined on a `stream(...)`; `now` an aware datetime;
        `intercept` as the setting `spark.clonos.intercept`, in this process until `close`.
        `services` makes what answers the function. `repeats` are the rows that another driver of this operator was fed
        in its first epoch, and what it has recorded: the instance begins by repeating that, as `kill` does.
        `folder` is where its own folder goes.

        Raises QueryDefinitionError where that is not one operator, and what the operator's own `init` raises.
        """
        if now.tzinfo is None:
            raise ConfigurationError(
                "the clock of a driver needs a time zone", hint="Give now=...replace(tzinfo=UTC)"
            )
        self._services = services
        self._node, read = node_of(operator)
        self._intercept = intercept
        self._forms = RowForms(self._node, read)
        self._now = (now - _EPOCH) // _MICROSECOND
        self._nature = random.Random(seed)
        self._folder = Path(tempfile.mkdtemp(prefix="clonos-driver-", dir=folder))
        if intercept:
            install()
            rebind()
        self._remove = weakref.finalize(self, _remove, self._folder, intercepted=intercept)
        self._snapshots = SnapshotStore(
            str(self._folder / "snapshots"), fence=_FENCE, pending=str(self._folder / "pending")
        )
        self._epoch = FIRST_EPOCH
        self._ended: Manifest | None = None  # the snapshot of the last epoch's end
        self._log_start = LOG_BEGIN  # where the log of this epoch begins
        self._position = 0  # of the last record
        self._fed: list[Row] = []  # the records of this epoch
        self._said: list[Said] = []  # what each step of this epoch has said
        self._given_out = NO_OUTPUT  # how many rows the test has been given
        self._keys: dict[tuple[Any, ...], None] = {}
        self._lives = 0
        self._works = False
        if repeats is not None:
            self._repeat(*repeats)
        else:
            self._life = self._new_life()
            self._begin(b"")

    # ------------------------------------------------------------- driving

    def feed(self, rows: Iterable[Any], *, input: Literal["left", "right"] = "left") -> list[Row]:
        """Give the operator records, as one bundle; the rows that it says to them, in order. A row of a side output is
        a `SideOutput(output, row)`. `input`: which one of an operator with two (`clonos.connect`).

        A record is a tuple or list (by position), or a dict or `Row` (by name) of the input schema. Raises InputError
        where one does not fit it, and what the function raises (`UserFunctionError`, its exception being the cause):
        the instance is lost then, and `kill` brings another one, which tries the same records again.
        """
        given = self._forms.read(list(rows), of_right=input == "right")

        def run() -> list[Row]:
            self._keys.update(dict.fromkeys(self._life.config.keys_of(given)))
            first, self._position = self._position + 1, self._position + len(given)
            self._fed += given
            return self._life.take(first, given) + self._life.pass_event_time(self._now, self._now)

        return self._driven(run)

    def advance(self, seconds: float | dt.timedelta) -> list[Row]:
        """Let time pass, in seconds or as a timedelta; the rows of the processing-time timers that fire, in order.

        A timer fires when the clock has come to its due time, so functions see the times one after the other. With
        `per="batch"` timers wait for `end_epoch`. Event time is not moved by this, but for an input that becomes idle
        (`idle_after`): it passes with the rows that are fed (`watermark`).
        """
        span = seconds if isinstance(seconds, dt.timedelta) else dt.timedelta(seconds=seconds)
        if span < dt.timedelta(0):
            raise ConfigurationError(f"time does not go back: {span}")
        until = self._now + span // _MICROSECOND

        def run() -> list[Row]:
            said, since = list[Row](), self._now
            while (due := self._life.next_due()) is not None and due <= until:
                self._now = max(self._now, due)
                said += self._life.tick(self._now)
            self._now = until
            return said + self._life.pass_event_time(since, until)

        return self._driven(run)

    def end_epoch(self) -> list[Row]:
        """End the epoch: take a snapshot, commit, begin the next epoch. The rows that are said at the epoch's end:
        with `per="batch"` all of the epoch, otherwise none."""

        def run() -> list[Row]:
            said, self._ended, self._log_start = self._life.end_epoch(self._snapshots, self._epoch)
            self._epoch = epoch_after(self._epoch)
            self._fed.clear()
            return said + self._life.open_epoch(self._epoch, output_after(self._given_out, len(said)))

        return self._driven(run)

    def kill(self) -> list[Row]:
        """Throw the instance away. A new one restores the end of the last epoch and repeats what was recorded since.

        The rows that it says beyond what was said before: none, unless the killed instance had failed with records
        that it has not finished. Recorded calls and effects are not carried out again.

        Raises DivergenceError where the replay does not repeat what was recorded or said, or ends in another state or
        with other timers. The error names the first difference. Raises what the function raises.
        """
        try:
            return self._killed()
        except DivergenceError as error:
            raise advised(error, self._node.operator, intercept=self._intercept) from None

    def _killed(self) -> list[Row]:
        before = self._life.seen(self._keys) if self._works else None
        self._works = False
        self._life.end()
        recorded = self._life.recorded(self._log_start)
        self._life = self._new_life()
        rows = self._begin(recorded)
        if before is not None:
            self._works = False
            self._check_same(before, self._life.seen(self._keys))
            self._works = True
        return rows

    def end_with_recording(self) -> tuple[list[Row], Recording]:
        """End the epoch for good: its last rows, and what was recorded of it. The driver can only be closed then."""
        rows = self._driven(self._life.last_steps)
        seen, has_drawn = self._life.seen(self._keys), self._life.has_drawn
        log = self._life.recorded(self._log_start)
        self._works = False
        used = services_used(decode_steps(log, self._log_start))
        if has_drawn:
            used |= {Service.RANDOM}
        return rows, Recording(log, tuple(self._said), seen, self._given_out, used)

    def close(self) -> None:
        """Remove what is on disk. The driver cannot be used afterwards; closing it again does nothing."""
        self._works = False
        self._life.end()
        self._remove()

    def __enter__(self) -> OperatorDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -------------------------------------------------------------- looking

    def state(self, key: Any) -> Any:
        """A copy of the state of a key (a tuple, or the value itself where the key has one column); None without one.

        Of `process` it is the dict of `ctx.state`, of `applyInPandasWithState` the state's tuple, of
        `transformWithState` a dict from variables to what they hold: a tuple, a list of tuples, or a dict of tuples.
        """
        self._check_works()
        return self._life.state_of(_as_key(key))

    def timers(self, key: Any) -> list[Timer]:
        """The timers of a key that have not fired, each with `name`, `due_us` and `event`.

        Of `applyInPandasWithState` it is the timeout, without a name; of `transformWithState` the name is the time that
        was registered, in milliseconds.
        """
        self._check_works()
        return self._life.timers().get(_as_key(key), [])

    @property
    def keys(self) -> tuple[tuple[Any, ...], ...]:
        """Those of the records so far, each once."""
        return tuple(self._keys)

    @property
    def now(self) -> dt.datetime:
        """What the clock says, UTC."""
        return _EPOCH + self._now * _MICROSECOND

    @property
    def watermark(self) -> dt.datetime | None:
        """The event-time watermark, UTC: the latest event time that was fed, less the delay of `withWatermark`; of two
        inputs that have one the earlier, and none before both have. With `per="batch"` it moves when an epoch ends."""
        reached = self._life.services.watermark
        return None if reached is None else _EPOCH + reached * _MICROSECOND

    # -------------------------------------------------------------- inside

    def _new_life(self) -> Life:
        self._lives += 1
        return Life(
            self._node,
            self._forms,
            self._folder / f"life-{self._lives}",
            said=self._said,
            clock=lambda: self._now,
            entropy=lambda: self._nature.getrandbits(64),
            intercept=self._intercept,
            services=self._services,
        )

    def _begin(self, recorded: bytes) -> list[Row]:
        with self._works_afterwards():
            self._life.begin(self._snapshots, self._ended, recorded)
            rows = self._life.open_epoch(self._epoch, self._given_out)
            if self._fed:
                rows += self._life.take(self._position - len(self._fed) + 1, list(self._fed))
        self._given_out = output_after(self._given_out, len(rows))
        return rows

    def _repeat(self, rows: Iterable[Any], recording: Recording) -> None:
        """Of another driver. Raises as `kill` does."""
        self._fed = self._forms.read(list(rows))
        self._position = len(self._fed)
        self._keys.update(dict.fromkeys(recording.seen.states))
        self._said += recording.said
        self._given_out = recording.outputs
        self._life = self._new_life()
        try:
            self._begin(recording.log)
            self._check_same(recording.seen, self._life.seen(self._keys))
        except BaseException:
            self.close()
            raise

    def _driven(self, run: Callable[[], list[Row]]) -> list[Row]:
        self._check_works()
        with self._works_afterwards():
            rows = run()
        self._given_out = output_after(self._given_out, len(rows))
        return rows

    @contextmanager
    def _works_afterwards(self) -> Iterator[None]:
        """If nothing is raised."""
        self._works = False
        yield
        self._works = True

    def _check_works(self) -> None:
        if not self._remove.alive:
            raise ConfigurationError("the driver is closed")
        if not self._works:
            raise ConfigurationError(
                "the instance has failed", hint="kill() brings a new one, which repeats what was recorded"
            )

    def _check_same(self, before: Seen, now: Seen) -> None:
        found = differences.of_states(before, now) or differences.of_timers(before, now)
        if found:
            raise DivergenceError(found, where=Where(self._node.name, 0, self._epoch), hint=HINT)


def _remove(folder: Path, *, intercepted: bool) -> None:
    """What a driver has left on disk, and in the process."""
    shutil.rmtree(folder, ignore_errors=True)
    if intercepted:
        uninstall()


def claims_of(operator: CausalStream) -> Determinism:
    """What its functions say of themselves. Raises QueryDefinitionError."""
    _, plan = _read_of(operator)
    return plan.binding.claims


def _read_of(operator: CausalStream) -> tuple[OperatorPlan | DerivedPlan, OperatorPlan]:
    """What the stream is, and the operator that it is an output of."""
    plans = operator.plan if isinstance(operator, CausalStream) else ()
    read = plans[0] if len(plans) == 1 and isinstance(plans[0], OperatorPlan | DerivedPlan) else None
    plan = read.node if isinstance(read, DerivedPlan) else read
    if read is None or plan is None or plan.all_upstream:
        raise QueryDefinitionError(
            "a driver runs one operator",
            hint='Define it on a stream without rows: OperatorDriver(stream("a int").map(fn, "b int", name="op")). '
            "Of several operators in a row, give each its own driver",
        )
    return read, plan


def node_of(operator: CausalStream) -> tuple[NodeSpec, OutputName]:
    """The operator as a replica is told of it, and which of its outputs the stream is of.

    Raises QueryDefinitionError.
    """
    read, plan = _read_of(operator)
    name, output = plan.binding.name, output_read(read)
    sides = [
        SideOutputPlan(plan, OutputName(side)) for side in plan.side_outputs if side != base_output(read)
    ]
    derived = DerivedOf(plan, name, [read, *sides])
    derived.check_zone(operator.timezone)
    inputs = zip(
        INPUTS, (plan.event_time, plan.right.event_time if plan.right is not None else None), strict=True
    )
    spec = operator_spec(
        plan,
        _NODE,
        name,
        operator.timezone,
        [Target((), 1, output)],
        event_inputs=[EventInput(node, 1, each.idle_after) for node, each in inputs if each is not None],
        tables=None if plan.table is None else _tables(plan.table, operator.timezone),
        derived=derived,
    )
    return spec, output


def _tables(table: TablePlan, zone: str) -> Tables | RowsByInstance:
    return given_to(table, FixedTable(in_columns_of(table.schema, table.read())), 1, zone)


def _as_key(key: Any) -> tuple[Any, ...]:
    return key_of(key if isinstance(key, tuple) else (key,))
