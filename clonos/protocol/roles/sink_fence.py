"""Which writer may write to a sink, and which driver may drop what it keeps.

Each sink instance has a *holder*: the fence that stands, and the writer that took it. A start of the query raises the
fences of all instances, and a *floor* for those yet unseen; a fence that was only raised belongs to no writer. A writer
takes an instance under a fence above all of these. Under an equal one only the writer that holds it already may come
again, for instance when the answer to its taking was lost: two writers of one fence would each believe themselves the
only one.

Determinants are dropped by the driver, page by page and long after it decided to. Each page therefore shows the
driver's fence, which must not be below the floor.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos.errors import Fenced, SinkError, Where
from clonos.protocol.fence import LOWEST_FENCE, Fence
from clonos.protocol.ids import Origin

NO_WRITER = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """A fence, and the writer that took it, by a name that no other writer has."""

    fence: Fence = LOWEST_FENCE
    owner: str = NO_WRITER

    def raised_to(self, fence: Fence) -> Holder:
        """The writer that held it holds it no more, if the new fence is higher."""
        return Holder(fence) if fence > self.fence else self


def check_taking(offered: Holder, standing: Holder, *, floor: Fence, origin: Origin) -> None:
    """Raises Fenced unless `offered` may become the holder."""
    highest = max(floor, standing.fence)
    if offered.fence < highest:
        raise _fenced(offered, highest, origin)
    if offered.fence == standing.fence and standing.owner not in (NO_WRITER, offered.owner):
        raise Fenced(
            f"sink node {origin.node} was taken by another writer under the same fence, {offered.fence:x}",
            where=Where(instance=origin.instance),
        )


def check_holding(mine: Holder, standing: Holder, *, origin: Origin, kept_in: str) -> None:
    """Raises Fenced unless `mine` is still the holder. Fences only rise, so where none stands any more no writer has
    taken over: what they are kept in was removed, and that is a SinkError."""
    if standing == Holder() and mine.fence > 0:
        raise SinkError(
            f"the fence of sink node {origin.node} is gone: {kept_in} holds none, this writer took {mine.fence:x}",
            where=Where(instance=origin.instance),
            hint="Leave what the sink keeps alone while its query runs. Nothing of this bundle was written; start the "
            "query again, which takes a new fence",
        )
    if standing != mine:
        raise _fenced(mine, standing.fence, origin)


def check_driver(fence: Fence, *, floor: Fence) -> None:
    """Raises Fenced where a later start of the query has raised the floor: this driver changes nothing any more."""
    if fence < floor:
        raise Fenced(
            f"the sink belongs to a later start of the query: fence {floor:x} stands, this driver holds {fence:x}"
        )


def _fenced(mine: Holder, standing: Fence, origin: Origin) -> Fenced:
    return Fenced(
        f"sink node {origin.node} was taken over: fence {standing:x} stands, this writer holds {mine.fence:x}",
        where=Where(instance=origin.instance),
    )
