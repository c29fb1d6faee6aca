"""`process`, `map`, `flat_map` and `filter`: the record-at-a-time fast path.

Per record there is one attribute switched, one call of the user's function and, per row that it gives, one look at its
type and one `append`; everything else is done per bundle, or only where a row can still change or something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import isawaitable, iscoroutine
from typing import Any

import pyarrow as pa

from clonos.errors import InputError, PurityError, QueryDefinitionError
from clonos.operators import current
from clonos.operators.column_flow import UNCHANGED, ColumnFlow, KnowsColumns
from clonos.operators.context import Context, KeyedContext
from clonos.operators.migration import migrate_all
from clonos.operators.outputs import RAISED, Outputs, failed, row_index
from clonos.operators.rows import zone_of
from clonos.operators.side_outputs import SideOutputs
from clonos.protocol.engine.given_rows import rows_told
from clonos.protocol.operator import EntryPlace, Services
from clonos.protocol.versions.state_evolution import Fields
from clonos.values.key_codec import kept_under, pack

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is due: what `on_timer(key, timer, ctx)` is told about it."""

    name: str
    due_us: int
    event: bool

    @property
    def at(self) -> datetime:
        """When it was due, UTC."""
        return _EPOCH + timedelta(microseconds=self.due_us)


class ProcessOperator:
    """`fn(key, row, ctx)` gives an iterable of output rows, or None; `on_timer(key, timer, ctx)` likewise."""

    form = "process"
    record_at_a_time = True
    per_epoch = False

    def __init__(
        self,
        fn: Callable[..., Any],
        output: pa.Schema | Sequence[str],
        *,
        name: str,
        on_timer: Callable[..., Any] | None = None,
        migrate: Callable[..., Any] | None = None,
        tz: str | None = "UTC",
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> None:
        self._fn = fn
        self._migrate = migrate
        self.migrates = frozenset([""] if migrate is not None else [])
        self._on_timer = on_timer
        self._name = name
        self._outputs = Outputs(output, name)
        self._side_outputs = SideOutputs(side_outputs or {}, name)
        self._zone = zone_of(tz)
        self._ctx: KeyedContext
        self._in_pieces = False

    def open(self, services: Services) -> None:
        self._services = services
        self._ctx = KeyedContext(services, self._zone, self._side_outputs, self._on_timer is not None)

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        ctx, fn = self._ctx, self._fn
        plain, taken = self._outputs.plain, self._outputs.taken
        made = self._begin_rows()
        append = made.append
        noted = self._services.given_rows
        result: Any = None
        left = iter(rows)
        before = ctx.begin()
        try:
            for key, row in zip(keys, left):
                ctx.key = key
                result = fn(key, row, ctx)
                if result is not None:
                    for one in result:  # as `Outputs.collect`, without a call per record
                        append(one if type(one) is plain else taken(one, made))
                if noted is not None:
                    append(None)
        except RAISED as error:
            ctx.forget()
            index = row_index(left, len(rows))
            raise failed(error, self._name, self._services, index, result=result) from error
        finally:
            current.leave(before)
            ctx.key = None
        if not self._in_pieces:
            ctx.keep()
        if noted is not None:
            noted.take_marks(made, len(rows))
        return self._side_outputs.settle(made, self._outputs)

    @contextmanager
    def pieces(self) -> Iterator[None]:
        """The state is kept at the end, as that of one bundle: in between, two names may be one object. Where an error
        ends it, none is."""
        self._in_pieces = True
        try:
            yield
        except BaseException:
            self._ctx.forget()
            raise
        finally:
            self._in_pieces = False
        self._ctx.keep()

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[tuple[Any, ...]]:
        ctx, fn = self._ctx, self._on_timer
        if fn is None:
            if due:
                raise QueryDefinitionError(f"{self._name!r} set a timer, but declares no on_timer=")
            return []
        made = self._begin_rows()
        tell = rows_told(self._services)
        result: Any = None
        before = ctx.begin()
        try:
            for moment, _, name in ctx.fire(due, event):
                result = fn(ctx.key, Timer(name, moment, event), ctx)
                if result is not None:
                    self._outputs.collect(result, made)
                if tell is not None:
                    tell(len(made))
        except RAISED as error:
            ctx.forget()
            what = f" in on_timer, key {ctx.key!r}"
            raise failed(error, self._name, self._services, None, what, result) from error
        finally:
            current.leave(before)
            ctx.key = None
        ctx.keep()
        return self._side_outputs.settle(made, self._outputs)

    def _begin_rows(self) -> list[Any]:
        """Where the rows of a call go."""
        made: list[Any] = self._side_outputs.begin()
        if (sets := self._services.input_sets) is not None:
            sets.rows_go_to(made)
        return made

    def gathered(self) -> list[tuple[Any, ...]]:
        return []

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        data = pack(key)
        loaded = self._ctx.loaded(key)  # by an earlier piece of the bundle
        return kept_under(self._services, data) if loaded is None else {data: loaded} if loaded else {}

    def user_state(self, key: tuple[Any, ...]) -> dict[Any, Any] | None:
        """A copy of the state of a key as the function knows it, between two bundles."""
        kept: dict[Any, Any] | None = self._services.state.load(pack(key))
        return kept

    def migrate(self, before: str, moved: Mapping[str, Fields]) -> None:
        """Bring every key's state up to date from that of another version. It has no declared fields."""
        if self._migrate is not None:
            migrate_all(self._services, self._name, b"", before, self._migrate, _checked, users=True)

    def close(self) -> None:
        pass


class OfBoth:
    """The function of an operator with two inputs: each record goes to that of its input."""

    def __init__(self, left: Callable[..., Any], right: Callable[..., Any]) -> None:
        self._left = left
        self._right = right

    def __call__(self, key: tuple[Any, ...], row: Any, ctx: KeyedContext) -> Any:
        return (self._right if row._is_right else self._left)(key, row, ctx)


class ConnectOperator(ProcessOperator):
    """`left(key, row, ctx)` and `right(key, row, ctx)` each take the records of one input."""

    form = "connect"

    def __init__(
        self,
        left: Callable[..., Any],
        right: Callable[..., Any],
        output: pa.Schema | Sequence[str],
        **more: Any,
    ) -> None:
        super().__init__(OfBoth(left, right), output, **more)
        of = getattr(left, "__self__", None)
        self._join = of if isinstance(of, KnowsColumns) else None  # its functions are the library's own

    def open(self, services: Services) -> None:
        super().open(services)
        if self._join is not None and services.input_sets is not None:
            services.input_sets.entries_are(EntryPlace.UNDER_KEYS)

    def column_flow(self, keys: int) -> ColumnFlow | None:
        """Known of a join."""
        return None if self._join is None else self._join.column_flow(keys)


def _checked(state: Any) -> dict[Any, Any] | None:
    if not isinstance(state, dict):
        raise TypeError(f"the state of a key is a dict, not {type(state).__name__}")
    return state or None


class Stateless:
    """What `map`, `flat_map` and `filter` share: no key, no state, no timers; with or without a context."""

    form = ""
    record_at_a_time = True
    per_epoch = False

    def __init__(
        self,
        fn: Any,
        output: pa.Schema | Sequence[str],
        *,
        name: str,
        pure: bool,
        tz: str | None = "UTC",
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> None:
        self._fn = fn
        self._pure = pure
        self.form = f"pure {type(self).form}" if pure else type(self).form
        self._name = name
        self._outputs = Outputs(output, name)
        self._side_outputs = SideOutputs(side_outputs or {}, name)
        self._zone = zone_of(tz)

    def open(self, services: Services) -> None:
        self._services = services
        self._ctx = Context(services, self._zone, self._side_outputs)

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        left = iter(rows)
        before = current.enter_pure(self._name) if self._pure else self._ctx.begin()
        try:
            made = self._run(left, rows)
        except RAISED as error:
            raise failed(error, self._name, self._services, row_index(left, len(rows))) from error
        finally:
            current.leave(before)
        return made

    def pieces(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _run(self, left: Any, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[tuple[Any, ...]]:
        if due:
            raise PurityError(f"{self._name!r} has no timers, but {len(due)} are due")
        return []

    def gathered(self) -> list[tuple[Any, ...]]:
        return []

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        return {}

    def user_state(self, key: tuple[Any, ...]) -> None:
        """There is none."""

    def close(self) -> None:
        pass


class MapOperator(Stateless):
    """`fn(row, ctx)`, or `fn(row)` when pure, gives exactly one output row per row."""

    form = "map"

    def _run(self, left: Any, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        fn, ctx = self._fn, self._ctx
        plain, taken = self._outputs.plain, partial(self._given, left, len(rows))
        if self._side_outputs and not self._pure:
            made, tell = self._side_outputs.begin(), rows_told(self._services)
            for row in left:
                one = fn(row, ctx)  # may have given rows of side outputs
                made.append(one if type(one) is plain else taken(one))
                if tell is not None:
                    tell(len(made))
            return self._side_outputs.settle(made, self._outputs)
        if (noted := self._services.given_rows) is not None:
            noted.one_each(len(rows))
        if self._pure:
            made = [one if type(one := fn(row)) is plain else taken(one) for row in left]
        else:
            made = [one if type(one := fn(row, ctx)) is plain else taken(one) for row in left]
        return self._side_outputs.settle(made, self._outputs)

    def _given(self, left: Any, count: int, one: Any) -> tuple[Any, ...]:
        return self._outputs.taken(one_row(one, self._name), range(row_index(left, count) or 0))


def one_row(given: Any, name: str) -> Any:
    """What a function of `map` gave for a record. Raises InputError where it is nothing."""
    if given is None:
        raise InputError(
            f"{name!r} gave no row for one",
            hint="map gives one row for each; use flat_map or filter to drop rows",
        )
    return given


class FlatMapOperator(Stateless):
    """`fn(row, ctx)`, or `fn(row)` when pure, gives an iterable of output rows, or None."""

    form = "flat_map"

    def _run(self, left: Any, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        fn = self._fn
        args: tuple[Context, ...] = () if self._pure else (self._ctx,)
        made: list[Any] = self._side_outputs.begin()
        noted = self._services.given_rows
        for row in left:
            result = fn(row, *args)
            if result is not None:
                self._outputs.collect(result, made)
            if noted is not None:
                made.append(None)
        if noted is not None:
            noted.take_marks(made, len(rows))
        return self._side_outputs.settle(made, self._outputs)


class FilterOperator(Stateless):
    """`fn(row, ctx)`, or `fn(row)` when pure, tells whether the row stays."""

    form = "filter"
    _verdicts_are_unknown = True  # until there was a bundle

    def column_flow(self, keys: int) -> ColumnFlow:
        return UNCHANGED

    def _checked(self, *given: Any) -> Any:
        """A coroutine would be true, whatever it comes to."""
        self._verdicts_are_unknown = False
        verdict = self._fn(*given)
        if isawaitable(verdict):
            said = repr(verdict)
            if iscoroutine(verdict):
                verdict.close()  # or Python would say that it was never awaited
            raise InputError(
                f"{self._name!r} gave {said}, which nothing awaits",
                hint="Declare the function that is given to filter with async def, and await in it",
            )
        return verdict

    def _run(self, left: Any, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        fn, ctx = self._fn, self._ctx
        copy, tell = self._outputs.copier, rows_told(self._services)
        args: tuple[Context, ...] = () if self._pure else (ctx,)
        if self._verdicts_are_unknown and not self._side_outputs:
            fn = self._checked
        if self._side_outputs or tell is not None:
            made = self._side_outputs.begin()
            for row in left:
                if fn(row, *args):  # may have given rows of side outputs
                    made.append(row if copy is None else copy(row))
                if tell is not None:
                    tell(len(made))
            return made
        if copy is not None:
            return [copy(row) for row in left if fn(row, *args)]
        if self._pure:
            return [row for row in left if fn(row)]
        return [row for row in left if fn(row, ctx)]
