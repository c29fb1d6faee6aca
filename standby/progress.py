"""How far a recovery has come, and how long its parts took: one line in the replica's output when it is over."""

from __future__ import annotations

import time

from standby.loop import log


class Recovery:
    """Starts with its creation; `done` names what has just been done."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._began = self._last = time.monotonic()
        self._parts: list[str] = []

    def done(self, part: str) -> None:
        now = time.monotonic()
        self._parts.append(f"{part} {(now - self._last) * 1000:.0f}")
        self._last = now

    def live(self, repeated: int) -> None:
        """The instance goes on with new records; `repeated` is the bytes of log it has repeated."""
        self.done("replay")
        spent = (self._last - self._began) * 1000
        log(
            f"epoch {self._epoch}: live after {spent:.0f} ms ({', '.join(self._parts)}; {repeated} bytes repeated)"
        )
