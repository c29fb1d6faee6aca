"""Whom a replica server serves, and whether with the process that is there already.

Spark may run two attempts of one task at a time, and a conduit that is presumed dead may only be slow. Each connection
therefore shows a fence that rises with every incarnation, and the server remembers the highest one of each instance,
across its own death. Nothing is served under a fence that is not newer, nor one of a start of the query that is over. A
standby acts under no fence of its own: it may show the one that its primary, on another host, shows.

A process goes on with a later epoch only from the end of an earlier one: in the middle of one, what it holds in memory
may be ahead of what anybody was shown.
"""

from __future__ import annotations

from typing import Protocol

from clonos.core.replacement import generation_of


class Said(Protocol):
    """Of what a conduit says when it connects."""

    @property
    def epoch(self) -> int: ...

    @property
    def fence(self) -> int: ...

    @property
    def fresh(self) -> bool: ...

    @property
    def again(self) -> bool: ...

    @property
    def standby(self) -> bool: ...


def admits(fence: int, *, standby: bool, highest: int, generation: int) -> bool:
    """Whether a connection may be served: `highest` is the highest fence that the instance was shown (-1: none),
    `generation` the start of the query that runs."""
    if generation_of(fence) < generation:
        return False
    return fence >= highest if standby else fence > highest


def goes_on(said: Said, *, last: Said | None, at_end: int | None) -> bool:
    """Whether the process that serves the instance may go on with this connection, after what it was told `last`.
    `at_end` is the epoch at whose end it stands, if it does."""
    if not said.fresh or last is None or generation_of(last.fence) != generation_of(said.fence):
        return False
    if said.again and not said.standby:
        return False  # the attempt before may have run elsewhere
    if at_end is not None:
        return at_end < said.epoch  # Spark runs no task of a stage that it knows to have no input
    # A standby may still be at the end of the epoch before when its conduit is gone.
    return said.standby and last.standby and last.epoch < said.epoch
