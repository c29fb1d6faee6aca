"""An operator over windows of event time: what comes into a window is kept until the watermark has come to its end.

As Spark has it in append mode: the rows of a window are given out once, when only late rows can still come; a row is
late for a window that has ended, not by its own time; a row without event time is in no window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

from clonos.operators.process import ProcessOperator, Timer
from clonos.operators.rows import instant, local
from clonos.operators.window_contents import Contents, Key
from clonos.operators.window_context import WindowContext
from clonos.operators.windows import SessionWindows, Window, Windows
from clonos.protocol.event_time import is_late
from clonos.protocol.operator import Services
from clonos.values.key_codec import pack

_INDEX: Final = "windows"
"""Behind a key's values, the key under which its windows are."""
_OPEN: Final = "open"
_ENDS: Final = "ends"
"""The name of the timers."""
_MILLISECOND: Final = 1000

Open = list[Any]
"""A window that is open: its begin, its end, what is kept of it."""


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

    form = "window"

    def __init__(
        self,
        windows: Windows,
        contents: Contents,
        output: Any,
        *,
        times: EventTimes,
        late: str | None,
        **more: Any,
    ) -> None:
        super().__init__(self._arrives, output, on_timer=self._ended, **more)
        self._windows = windows
        self._contents = contents
        self._times = times
        self._late = late

    def open(self, services: Services) -> None:
        super().open(services)
        self._ctx = WindowContext(services, self._zone, self._side_outputs)

    def kept(self, key: Key) -> dict[bytes, Any]:
        """With what is kept of the key's windows."""
        index = (*key, _INDEX)
        found = super().kept(key) | super().kept(index)
        for _, _, kept in found.get(pack(index), {}).get(_OPEN, ()):
            for piece in self._contents.pieces(key, kept):
                found |= super().kept(piece)
        return found

    # ---------------------------------------------------------------- rows

    def _arrives(self, key: Key, row: Any, ctx: WindowContext) -> None:
        at, watermark = row[self._times.column], self._services.watermark
        spans = [] if at is None else self._windows.of(self._times.moment(at))
        spans = [span for span in spans if not is_late(self._times.instant(span[1]), watermark)]
        for span in spans:
            known = ctx.state_under((*key, _INDEX)).setdefault(_OPEN, [])
            window = (self._session if self._merges else self._window)(*span, known, ctx)
            window[2] = self._contents.add(key, span, window[2], row, ctx)
        if not spans and self._late is not None:
            ctx.side_output(self._late, row)

    @property
    def _merges(self) -> bool:
        return isinstance(self._windows, SessionWindows)

    def _window(self, start: int, end: int, known: list[Open], ctx: WindowContext) -> Open:
        for window in known:
            if window[0] == start and window[1] == end:
                return window
        return self._begin(start, end, known, ctx)

    def _session(self, start: int, end: int, known: list[Open], ctx: WindowContext) -> Open:
        """All sessions that the row touches are one from now on."""
        touched = sorted((each for each in known if each[0] <= end and start <= each[1]), key=_time)
        if not touched:
            return self._begin(start, end, known, ctx)
        ends = {each[1] for each in touched}
        session, *others = touched
        for other in others:
            session[2] = self._contents.merge(session[2], other[2])
            known.remove(other)
        session[0], session[1] = min(session[0], start), max(end, *ends)
        for gone in ends - {session[1]}:
            ctx.forget_end(self._due(gone), _ENDS)
        ctx.await_end(self._due(session[1]), _ENDS)
        return session

    def _begin(self, start: int, end: int, known: list[Open], ctx: WindowContext) -> Open:
        window: Open = [start, end, None]
        known.append(window)
        ctx.await_end(self._due(end), _ENDS)
        return window

    # ----------------------------------------------------------- watermark

    def _due(self, end: int) -> int:
        """When a window that ends there has ended. `is_late` counts watermarks in milliseconds."""
        return -(-self._times.instant(end) // _MILLISECOND) * _MILLISECOND

    def _ended(self, key: Key, timer: Timer, ctx: WindowContext) -> Iterator[Any]:
        index = ctx.state_under((*key, _INDEX))
        known: list[Open] = index.pop(_OPEN, [])
        left = [window for window in known if self._due(window[1]) > timer.due_us]
        if left:
            index[_OPEN] = left
        ended = [window for window in known if self._due(window[1]) <= timer.due_us]
        for start, end, kept in sorted(ended, key=_time):
            window = Window(self._times.shown(start), self._times.shown(end))
            rows = self._contents.finish(key, window, kept, ctx)
            if rows is not None:
                yield from rows


def _time(window: Open) -> tuple[int, int]:
    return window[0], window[1]
