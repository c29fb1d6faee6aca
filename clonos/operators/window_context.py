"""`ctx` of functions over windows: as that of `process`, without timers; and what their operator keeps itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

from clonos.errors import QueryDefinitionError
from clonos.operators.context import KeyedContext


class WindowContext(KeyedContext):
    __slots__ = ()

    def timer(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise QueryDefinitionError(
            "a function over windows sets no timers: it is called when the window has ended",
            hint="Use groupBy(...).process(fn, output, on_timer=...)",
        )

    def cancel_timer(self, due: int | datetime, name: str = "", event: bool = False) -> None:
        self.timer()

    def state_under(self, key: tuple[Any, ...]) -> dict[Any, Any]:
        """What the operator keeps under a key that is none of the user's. `ctx.state` stays the user's."""
        users, self.key = self.key, key
        try:
            return self.state
        finally:
            self.key = users

    def await_end(self, due: int, name: str) -> None:
        """Tell the operator, for this key, when the watermark has come so far."""
        self._services.event_timers.set(due, self._timer_key(), name)

    def forget_end(self, due: int, name: str) -> None:
        super().cancel_timer(due, name, event=True)
