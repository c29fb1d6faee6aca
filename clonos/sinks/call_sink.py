"""Rows to a function of the user's: a queue, a web service, a store that Clonos does not know.

What such a function does cannot be part of a transaction of ours, so the order is: determinants and intent into a log
of ours, then the call, then the cursors. A crash before the intent leaves nothing. After a crash behind it, it is not
known whether the bundle arrived; since its determinants are safe, the rows are made again, identical, with identical
ids, and

- `idempotent`: they are handed over again. The function must ignore ids that it has seen.
- `checkable`: `last_written(channel)` is asked how far the rows of a channel have arrived, and only the rest is handed
  over. The function must take the rows of a channel in order. Such a sink has one instance.

A zombie can still call the function after its successor has begun. It hands over only rows whose determinants were
logged before it was fenced, so an idempotent function sees the same ids with the same content. A checkable call holds
the sink's lock, so the successor waits for its end.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections import namedtuple
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from clonos.async_functions import refuse_async
from clonos.errors import (
    ClonosError,
    ConfigurationError,
    QueryDefinitionError,
    SinkError,
    SinkUnavailable,
    Where,
)
from clonos.protocol.fence import Fence
from clonos.protocol.ids import InstanceId, NodeId, Origin
from clonos.sinks.bundle import channel_of, check_bundle, position_of
from clonos.sinks.file_sink import FileSink
from clonos.sinks.patience import Patience
from clonos.sinks.port import Cursors, Row, SinkPosition
from clonos.sinks.sink_wal import Found, SinkWal
from clonos.sinks.values import check_names
from clonos.sinks.wal_files import local_path
from clonos.sinks.wal_format import Kind, Record
from clonos.storage.location import on_this_host

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[[list[Any], list[str]], object]
LastWritten = Callable[[int], int | None]
Mode = Literal["idempotent", "checkable"]


class CallableSink(FileSink):
    """`write(rows, ids)` is called with rows (named tuples of the row's columns) and, for each, its id.

    An id reads `<prefix><node>-<instance>-<position>`; the prefix is `id_prefix`, or the query's id and a slash where
    none is given, so that two queries never share an id. `path`: where the log goes, a local folder that every machine
    that may run this sink shares; by default inside the checkpoint. `retry`: exceptions of the function that may go
    away by themselves; others end the query. `patience`: for how many seconds those are tried again.
    """

    moved_by = Kind.DONE
    instants = False

    def __init__(
        self,
        write: Write,
        *,
        mode: Mode = "idempotent",
        last_written: LastWritten | None = None,
        path: str | os.PathLike[str] | None = None,
        id_prefix: str | None = None,
        retry: tuple[type[Exception], ...] = (OSError,),
        patience: float = 30.0,
        durable: bool = True,
    ) -> None:
        if not callable(write):
            raise QueryDefinitionError(f"a callable sink needs a function write(rows, ids), not {write!r}")
        refuse_async(write, "a callable sink")
        if mode not in ("idempotent", "checkable"):
            raise QueryDefinitionError(f"mode is 'idempotent' or 'checkable', not {mode!r}")
        if (mode == "checkable") != (last_written is not None):
            raise QueryDefinitionError(
                "mode 'checkable' needs last_written(channel), and only that mode takes it"
            )
        super().__init__(patience=patience, durable=durable)
        self._write, self._last_written, self._mode = write, last_written, mode
        self._path = None if path is None else local_path(path, "the path of a callable sink")
        self._id_prefix = id_prefix
        self._retry = (*retry, SinkUnavailable)
        self._names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"CallableSink({getattr(self._write, '__qualname__', self._write)!r}, mode={self._mode!r})"

    @property
    def parallelism(self) -> int | None:
        return 1 if self._mode == "checkable" else None

    @property
    def target(self) -> Hashable:
        return "call", id(self._write)

    def bind(self, checkpoint: str) -> None:
        """Keep the log in the checkpoint, unless a path was given."""
        if self._path is None:
            root = on_this_host(checkpoint)
            if root is None:
                raise QueryDefinitionError(
                    f"a callable sink cannot keep its log in {checkpoint!r}",
                    hint="Give it path=, a folder that every machine that may run it shares",
                )
            self._path = os.path.join(root, "clonos", "sinks")

    def validate(self, schema: pa.Schema) -> None:
        check_names(schema.names, "")
        self._names = tuple(schema.names)

    def writer(self) -> CallableWriter:
        if self._names is None:
            raise ConfigurationError(
                "this sink has not been given a schema yet", hint="Call validate(schema) first"
            )
        log = SinkWal(self._base, durable=self._durable)
        return CallableWriter(
            log,
            self._write,
            self._last_written,
            self._names,
            self._id_prefix,
            self._retry,
            Patience(self._patience),
        )

    @property
    def _base(self) -> str:
        if self._path is None:
            raise ConfigurationError("a callable sink has no place for its log yet", hint="Give it path=")
        return self._path


class CallableWriter:
    """See `clonos.sinks.port.SinkWriter`."""

    def __init__(
        self,
        log: SinkWal,
        write: Write,
        last_written: LastWritten | None,
        names: Sequence[str],
        id_prefix: str | None,
        retry: tuple[type[Exception], ...],
        patience: Patience,
    ) -> None:
        self._log = log
        self._call, self._last_written = write, last_written
        self._make_row: Callable[[Row], Any] = _row_maker(names)
        self._id_prefix, self._retry, self._patience = id_prefix, retry, patience
        self._prefix = ""
        self._cursors: Cursors = {}
        self._started = False
        # Logged as an intent, and not known to have arrived.
        self._intent: Record | None = None

    def open(self, *, query: str, node: NodeId, instance: InstanceId, fence: Fence) -> SinkPosition:
        self.close()
        if self._last_written is not None and instance != 0:
            raise SinkError("a checkable sink has one instance: its function cannot tell instances apart")
        self._prefix = f"{query}/" if self._id_prefix is None else self._id_prefix
        self._patience.run(lambda _: self._recover(self._log.open(query, Origin(node, instance), fence)))
        self._started = True
        return SinkPosition(cursors=dict(self._cursors))

    def write(self, rows: list[Row], ids: list[str], cursors: Cursors, deltas: list[bytes]) -> None:
        if not self._started:
            raise SinkError("a sink writer was used before it was opened")
        check_bundle(rows, ids, cursors, self._cursors)
        moved = {c: p for c, p in cursors.items() if p != self._cursors.get(c)}
        if not (rows or moved or deltas):
            return
        before = self._intent
        if before is not None and (before.cursors, before.deltas) != (moved, deltas):
            raise SinkError(
                "another bundle came while one is in doubt",
                hint="After a failed write repeat that very bundle or open a new writer",
            )
        if before is None:
            intent = Record(kind=Kind.INTENT, cursors=moved, deltas=deltas)
            self._patience.run(lambda _: self._log_intent(intent))
        self._patience.run(
            lambda attempt: self._deliver(rows, ids, retried=before is not None or attempt > 0)
        )
        self._patience.run(lambda _: self._log_done(moved))

    def counted(self) -> dict[str, float]:
        return {"sink_retries": self._patience.retries}

    def close(self) -> None:
        self._started = False
        self._intent = None
        self._log.close()

    def _log_intent(self, intent: Record) -> None:
        with self._log.held():
            if self._log.is_full:
                self._log.rotate(0, self._cursors)
            self._log.append(intent)
            self._intent = intent

    def _log_done(self, moved: Cursors) -> None:
        with self._log.held():
            self._log.append(Record(kind=Kind.DONE, cursors=moved))
        self._cursors.update(moved)
        self._intent = None

    def _deliver(self, rows: list[Row], ids: list[str], *, retried: bool) -> None:
        if not rows:
            return
        if self._last_written is None:
            if retried:
                with self._log.held():  # a successor may have begun meanwhile
                    pass
            self._hand_over(rows, ids)
            return
        with self._log.held():
            if retried:
                rows, ids = self._not_arrived(rows, ids)
            if rows:
                self._hand_over(rows, ids)

    def _hand_over(self, rows: list[Row], ids: list[str]) -> None:
        make, prefix = self._make_row, self._prefix
        self._ask(lambda: self._call([make(row) for row in rows], [prefix + each for each in ids]), "write")

    def _not_arrived(self, rows: list[Row], ids: list[str]) -> tuple[list[Row], list[str]]:
        reached: dict[int, int] = {}
        rest: list[tuple[Row, str]] = []
        for row, row_id in zip(rows, ids, strict=True):
            channel = channel_of(row_id)
            if channel not in reached:
                intended = self._intent.cursors if self._intent is not None else {}
                reached[channel] = self._arrived(channel, self._cursors, intended)
            if position_of(row_id) > reached[channel]:
                rest.append((row, row_id))
        return [row for row, _ in rest], [row_id for _, row_id in rest]

    def _arrived(self, channel: int, standing: Cursors, intended: Cursors) -> int:
        """What last_written says. It must lie between what is known to have arrived and what was handed over."""
        asked = self._last_written
        position = _position(None if asked is None else self._ask(lambda: asked(channel), "last_written"))
        done = standing.get(channel, -1)
        furthest = max(done, intended.get(channel, done))
        if not done <= position <= furthest:
            raise SinkError(
                f"last_written says {_said(position)}; {_rows(done)} had arrived and {_rows(furthest)} were handed "
                "over",
                where=Where(channel=channel),
                hint="It must say the position of the last row of that channel that arrived, and what has arrived must "
                "stay",
            )
        return position

    def _ask(self, function: Callable[[], Any], name: str) -> Any:
        """Call the user's function and tell its failures apart."""
        try:
            return function()
        except SinkUnavailable:
            raise
        except self._retry as error:
            raise SinkUnavailable(f"the sink's {name} failed: {type(error).__name__}: {error}") from error
        except ClonosError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a function that exits must not take the replica with it silently
            raise SinkError(f"the sink's {name} failed: {type(error).__name__}: {error}") from error

    def _recover(self, found: Found) -> None:
        """Where do we stand: what is done, and of what was intended, what a checkable function says has arrived."""
        standing = dict(found.base.cursors)
        intended: Cursors = {}
        for record in found.records:
            if record.kind is Kind.DONE:
                standing.update(record.cursors)
                intended = {}
            elif record.kind is Kind.INTENT:
                intended = dict(record.cursors)
        with self._log.held():
            if self._last_written is not None:
                for channel in sorted({*standing, *intended}):
                    arrived = self._arrived(channel, standing, intended)
                    if arrived >= 0:
                        standing[channel] = arrived
            self._cursors = standing
            self._log.rotate(0, standing)


def _position(answer: object) -> int:
    """An answer of last_written as a number; -1 where nothing has arrived."""
    if answer is None:
        return -1
    if not isinstance(answer, bool):
        with contextlib.suppress(TypeError):
            return operator.index(answer)  # type: ignore[arg-type]
    raise SinkError(
        f"last_written says {answer!r}, which is no position",
        hint="It must return an integer, the position of the last row of that channel that arrived, or None",
    )


def _said(position: int) -> str:
    return "that nothing has arrived" if position == -1 else str(position)


def _rows(position: int) -> str:
    return "no rows" if position == -1 else f"rows up to {position}"


def _row_maker(names: Sequence[str]) -> Callable[[Row], Any]:
    make_type: Any = namedtuple  # its names are known when the query runs, not to the type checker
    maker: Callable[[Row], Any] = make_type("Row", names, rename=True)._make
    return maker
