"""An operator over windows of event time: what comes into a window is kept until the watermark has come to its end.

As Spark has it in append mode: the rows of a window are given out once, when only late rows can still come; a row is
late for a window that has ended, not by its own time; a row without event time is in no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from clonos.operators.column_flow import ColumnFlow
from clonos.operators.process import ProcessOperator, Timer
from clonos.operators.rows import instant, local
from clonos.operators.window_contents import Aggregate, Contents, Key
from clonos.operators.window_context import WindowContext
from clonos.operators.windows import SessionWindows, Window, Windows
from clonos.protocol.event_time import ended_by, is_late
from clonos.protocol.operator import Entry, EntryPlace, Services
from clonos.values.grouping_keys import key_of
from clonos.values.key_codec import pack

_INDEX: Final = "windows"
"""Behind a key's values, the key under which its windows are."""
_OPEN, _NEXT = "open", "next"
"""The windows that are open, and the number of the one that was begun last."""
_ENDS: Final = "ends"
"""The name of the timers."""

Index = dict[str, Any]
Open = list[Any]
"""A window that is open: its begin, its end, what is kept of it, its number, whether it is a session."""
_KEPT, _NUMBER, _IS_SESSION = 2, 3, 4


@dataclass(frozen=True)
class EventTimes:
    """Of the rows: the column, and whether it is what clocks in the zone show (TIMESTAMP_NTZ). Windows are aligned to
    1970 by what the column says, as Spark aligns them."""

    column: int
    is_local: bool
    zone: tzinfo | None

    def moment(self, at: datetime) -> int:
        """Microseconds since 1970, as the column says it."""
        return instant(at, UTC if self.is_local else self.zone)

    def instant(self, moment: int) -> int:
        """The same as watermarks count."""
        return instant(self.shown(moment), self.zone) if self.is_local else moment

    def shown(self, moment: int) -> datetime:
        """The same as rows have it. What is beyond the years of Python is as far as they go: a watermark, which comes
        from rows, does not come to the end of such a window."""
        try:
            return local(moment, UTC if self.is_local else self.zone)
        except OverflowError:
            return datetime.max if moment > 0 else datetime.min


class WindowOperator(ProcessOperator):
    """`late` is the side output of rows for which no window is open; None: they are dropped."""

    def __init__(
        self,
        windows: Windows,
        contents: Contents,
        output: Any,
        *,
        times: EventTimes,
        late: str | None,
        copy: Callable[[Any], Any] | None = None,
        **more: Any,
    ) -> None:
        """`copy` is of a row with values that may change: several windows do not share them."""
        self.form = f"window, {contents.form}"
        super().__init__(self._arrives, output, on_timer=self._ended, **more)
        self._windows = windows
        self._contents = contents
        self._times = times
        self._late = late
        self._copy = copy

    def column_flow(self, keys: int) -> ColumnFlow | None:
        fold = self._contents.fold if isinstance(self._contents, Aggregate) else None
        return None if fold is None else fold.column_flow(keys, self._times.column)

    def open(self, services: Services) -> None:
        super().open(services)
        self._ctx = WindowContext(services, self._zone, self._side_outputs)
        if services.input_sets is not None:
            services.input_sets.entries_are(EntryPlace.BESIDE_KEYS)

    def kept(self, key: Key) -> dict[bytes, Any]:
        """With what is kept of the key's windows."""
        index = _index(key)
        found = super().kept(key) | super().kept(index)
        for window in found.get(pack(index), {}).get(_OPEN, ()):
            for piece in self._contents.pieces(key, window[_KEPT]):
                found |= super().kept(piece)
        return found

    # ---------------------------------------------------------------- rows

    def _arrives(self, key: Key, row: Any, ctx: WindowContext) -> None:
        at, watermark = row[self._times.column], self._services.watermark
        spans = [] if at is None else self._windows.of(self._times.moment(at))
        spans = [span for span in spans if not is_late(self._times.instant(span[1]), watermark)]
        for span in spans:
            index = ctx.state_under(_index(key))
            window = (self._session if self._merges else self._window)(*span, key, index, ctx)
            own = row if self._copy is None or len(spans) == 1 else self._copy(row)
            window[_KEPT] = self._contents.add(key, window[_NUMBER], window[_KEPT], own, ctx)
            if (sets := self._services.input_sets) is not None:
                sets.adds(_entry(key, window))
        if not spans and self._late is not None:
            ctx.side_output(self._late, row)
        elif not spans:
            self._services.drop_late(1)

    @property
    def _merges(self) -> bool:
        return isinstance(self._windows, SessionWindows)

    def _window(self, start: int, end: int, key: Key, index: Index, ctx: WindowContext) -> Open:
        known: list[Open] = index.get(_OPEN, [])
        for window in known:
            if window[0] == start and window[1] == end and not window[_IS_SESSION]:
                return window
        return self._begin(start, end, key, index, ctx)

    def _session(self, start: int, end: int, key: Key, index: Index, ctx: WindowContext) -> Open:
        """All sessions that the row touches are one from now on. Windows that an older version had are none."""
        known: list[Open] = index.get(_OPEN, [])
        sessions = [each for each in known if each[_IS_SESSION]]
        touched = sorted((each for each in sessions if each[0] <= end and start <= each[1]), key=_time)
        if not touched:
            return self._begin(start, end, key, index, ctx)
        ends = {each[1] for each in touched}
        session, *others = touched
        for other in others:
            session[_KEPT] = self._contents.merge(session[_KEPT], other[_KEPT])
            if (sets := self._services.input_sets) is not None:
                sets.merges(_entry(key, session), _entry(key, other))
            known[:] = [each for each in known if each is not other]
        session[0], session[1] = min(session[0], start), max(end, *ends)
        awaited = {self._due(each[1]) for each in known}
        for gone in {self._due(moment) for moment in ends} - awaited:
            ctx.forget_end(gone, _ENDS)
        ctx.await_end(self._due(session[1]), _ENDS)
        return session

    def _begin(self, start: int, end: int, key: Key, index: Index, ctx: WindowContext) -> Open:
        number = index[_NEXT] = index.get(_NEXT, 0) + 1
        window: Open = [start, end, None, number, self._merges]
        index.setdefault(_OPEN, []).append(window)
        if (sets := self._services.input_sets) is not None:
            sets.holds(_entry(key, window), 0)
        ctx.await_end(self._due(end), _ENDS)
        return window

    # ----------------------------------------------------------- watermark

    def _due(self, end: int) -> int:
        """By which watermark a window that ends there has ended."""
        return ended_by(self._times.instant(end))

    def _ended(self, key: Key, timer: Timer, ctx: WindowContext) -> Iterator[Any]:
        index = ctx.state_under(_index(key))
        known: list[Open] = index.get(_OPEN, [])
        left = [each for each in known if self._due(each[1]) > timer.due_us]
        if left:
            index[_OPEN] = left
        else:
            index.clear()
        for each in sorted((each for each in known if self._due(each[1]) <= timer.due_us), key=_time):
            window = Window(self._times.shown(each[0]), self._times.shown(each[1]))
            if (sets := self._services.input_sets) is not None:
                sets.rows_are_of(_entry(key, each))
            rows = self._contents.finish(key, window, each[_KEPT], ctx)
            if rows is not None:
                yield from rows
            if sets is not None:
                sets.leaves(_entry(key, each), ())


def _time(window: Open) -> tuple[int, int]:
    return window[0], window[1]


def _entry(key: Key, window: Open) -> Entry:
    """As `InputSetPort` is told of it."""
    return pack(_index(key)), window[_NUMBER]


def _index(key: Key) -> Key:
    """Under which the windows of a key are kept."""
    return key_of((*key, _INDEX))
