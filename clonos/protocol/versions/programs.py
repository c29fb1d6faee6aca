"""An operator whose function changes from version to version.

Which version runs an epoch is decided once, before the epoch begins (`clonos.protocol.versions.upgrade`), and
recorded in the BOUNDARY with which it begins; a replay goes by what is recorded. So the instance changes its
function, and what is kept is brought up to date, exactly at a boundary: never in the middle of an epoch, and again in
the same way when it is repeated from a snapshot before it. A snapshot behind the boundary says which version wrote
its state, so nothing is migrated twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from clonos.errors import CheckpointMismatch
from clonos.protocol.ids import Epoch
from clonos.protocol.operator import Operator, Services
from clonos.protocol.versions.upgrade import TO_THE_END, Schedule, lacks_migrate

Make = Callable[[], Operator]


class Programs:
    """An operator by the versions of its function; itself an operator, of the version in force."""

    def __init__(self, name: str, schedule: Schedule, current: str, make: Mapping[str, Make]) -> None:
        """`current` is the version whose function the program was started with; of the others it has those in
        `make`."""
        self._name = name
        self._make = dict(make)
        self._current = current
        self._operators: dict[str, Operator] = {current: self._make[current]()}
        self._services: Services | None = None
        self._running: Operator | None = None
        self._schedule = schedule
        self._version: str | None = None
        self.form = self._operators[current].form
        # The same for all that may run here: another `per` waits until no epoch of the one before is open (`binding`).
        self.per_epoch = self._operators[current].per_epoch

    def open(self, services: Services) -> None:
        """The function that can only be the one is opened at once, so that what is wrong with it shows."""
        self._services = services
        if not self._is_changing:
            self._switch(self._current)

    @property
    def record_at_a_time(self) -> bool:
        """Of the one in force: a function that waits for calls is not, and the one before it may have been."""
        return (self._running or self._operators.get(self._current) or self._in_force()).record_at_a_time

    @property
    def _is_changing(self) -> bool:
        return self._schedule.entries[1:] != () or self._schedule.first != self._current

    @property
    def version(self) -> str:
        """The one in force."""
        return self._version or self._current

    def scheduled(self, epoch: Epoch) -> str:
        """Under which version an epoch is to run, as a log says it: the first one that the checkpoint had is not
        named."""
        return self._said(self._schedule.at(epoch))

    @property
    def written(self) -> str:
        """Which version wrote the state, as a snapshot says it."""
        return self._said(self._version or self._schedule.first)

    def _said(self, version: str) -> str:
        return "" if version == self._schedule.first else version

    def stands(self, said: str) -> None:
        """A snapshot is restored, whose state this version has written."""
        version = said or self._schedule.first
        if version in self._make:
            if self._running is None or self._version != version:
                self._switch(version)
            return
        self.close()
        self._version = version  # the next boundary may be one to a version that is there

    def enter(self, said: str) -> None:
        """An epoch begins under this version. Raises CheckpointMismatch where its function is not there, or what brings
        state up to date that another version has written."""
        before, version = self._version, said or self._schedule.first
        if before == version and self._running is not None:
            return
        running: Any = self._switch(version)
        if before in (None, version):
            return
        given: frozenset[str] = getattr(running, "migrates", frozenset())
        if self._schedule.migrates.get(version, frozenset()) - given:
            raise lacks_migrate(
                self._name, version, f"an instance has state that version {before!r} has written"
            )
        moved = self._schedule.moved(before, version)
        if given or moved:
            running.migrate(before, moved)

    def _switch(self, version: str) -> Operator:
        if version not in self._make:
            raise self._missing(version)
        assert self._services is not None
        if self._running is not None:
            self._running.close()
        running = self._operators.pop(version, None) or self._make[version]()
        running.open(self._services)
        self._running, self._version = running, version
        return running

    def _missing(self, version: str | None) -> CheckpointMismatch:
        return CheckpointMismatch(
            f"an epoch of {self._name!r} was recorded under version {version!r}, of which the program has no function: "
            f"it has {sorted(self._make)}",
            hint=f"Give the old function as previous={{{version!r}: function}}, or start the old program once "
            f"{TO_THE_END}",
        )

    def _in_force(self) -> Operator:
        if self._running is None:
            raise self._missing(self._version)
        return self._running

    def bundle(self, keys: list[tuple[Any, ...]], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return self._in_force().bundle(keys, rows)

    def timers(self, due: list[tuple[int, bytes, str]], event: bool) -> list[tuple[Any, ...]]:
        return self._in_force().timers(due, event)

    def pieces(self) -> AbstractContextManager[None]:
        """As a `RecordAtATime` has it."""
        running: Any = self._in_force()
        pieces: AbstractContextManager[None] = running.pieces()
        return pieces

    def gathered(self) -> list[tuple[Any, ...]]:
        return self._in_force().gathered()

    def kept(self, key: tuple[Any, ...]) -> dict[bytes, Any]:
        return self._in_force().kept(key)

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None
